//! The addresses of clients: `set_real_ip_from` and `real_ip_header`.

use ipnet::IpNet;

use super::Conversion;
use super::scope::Scope;
use super::syntax::Directive;

/// The length of an IPv6 address. nginx identifies a client by its whole address.
const IPV6_BITS: u8 = 128;

impl<'c> Conversion<'c, '_> {
    /// Sets how the gateway finds the address of a client. The rule file has one rule for all servers.
    pub(super) fn clients(&mut self, http: &Scope<'c>) {
        self.draft.clients.ipv6_prefix = Some(IPV6_BITS);
        let mut all: Vec<&Directive> = http.own("set_real_ip_from").to_vec();
        let is_common = !all.is_empty();
        inner(http.directives, &mut all);
        let has_proxy_protocol = http.last("real_ip_header").and_then(|header| header.arg(0)) == Some("proxy_protocol");
        for (index, directive) in all.iter().enumerate() {
            match directive.arg(0).and_then(network) {
                Some(network) if !self.draft.clients.trusted_proxies.contains(&network) => {
                    self.draft.clients.trusted_proxies.push(network);
                }
                Some(_) => {}
                None => {
                    self.notes.lost(directive, "not an address or a network");
                    continue;
                }
            }
            match (is_common, index) {
                _ if has_proxy_protocol => self.notes.same(directive, "`clients.trusted_proxies`"),
                (true, _) => self.notes.same(directive, "`clients.trusted_proxies`"),
                (false, _) => self.notes.looser(directive, "trusted by all servers: `clients` has no other scope"),
            }
        }
        self.real_ip_header(http, &all);
    }

    fn real_ip_header(&mut self, http: &Scope<'c>, trusted: &[&'c Directive]) {
        let mut headers: Vec<&Directive> = http.own("real_ip_header").to_vec();
        find(http.directives, "real_ip_header", &mut headers);
        let is_recursive = http.is_on("real_ip_recursive");
        if let Some(recursive) = http.last("real_ip_recursive") {
            let reason = "the address is the last one in the field that is not a trusted proxy";
            self.notes.same(recursive, if is_recursive { reason } else { "" });
        }
        for header in &headers {
            match header.arg(0).map(str::to_ascii_lowercase).as_deref() {
                _ if trusted.is_empty() => self.notes.same(header, "without effect: no address is trusted"),
                Some("x-forwarded-for") if is_recursive => self.notes.same(header, "`clients.trusted_proxies`"),
                Some("x-forwarded-for") => {
                    let reason =
                        "nginx uses the last address; here, trusted proxies at the end of the field are skipped";
                    self.notes.looser(header, reason);
                }
                Some("proxy_protocol") => self.notes.same(header, "`proxy_protocol` of the listener"),
                _ => self.notes.lost(header, "the address is read from X-Forwarded-For only"),
            }
        }
        if let ([first, ..], true) = (trusted, headers.is_empty()) {
            self.notes
                .lost(first, "nginx reads the address from X-Real-IP; here, it is read from X-Forwarded-For only");
        }
    }
}

/// Adds the `set_real_ip_from` of servers and locations.
fn inner<'c>(directives: &'c [Directive], found: &mut Vec<&'c Directive>) {
    find(directives, "set_real_ip_from", found);
}

/// Adds the directives with this name within the blocks of others.
fn find<'c>(directives: &'c [Directive], name: &str, found: &mut Vec<&'c Directive>) {
    for directive in directives.iter().filter(|directive| matches!(directive.name(), "server" | "location")) {
        found.extend(directive.inner().iter().filter(|inner| inner.name() == name));
        find(directive.inner(), name, found);
    }
}

/// Parses an address or a network.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from));
    network.map(|network: IpNet| network.trunc())
}
