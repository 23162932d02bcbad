//! The tables and the section of each limit.

use std::fmt::{Display, Write as _};

use super::sorted::Rates;
use super::text::{Escaped, grouped, percent};
use super::{over_time, sorted};
use crate::report::{LimitReport, Report};

/// A table whose first column has the heads of its rows.
pub(super) fn table<const N: usize>(
    caption: &str,
    heads: [(&str, &str); N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut html = format!("<div class=\"scroll\"><table><caption>{caption}</caption><thead><tr>");
    for (head, kind) in heads {
        _ = write!(html, "<th scope=\"col\" class=\"{kind}\">{head}</th>");
    }
    html += "</tr></thead><tbody>\n";
    for row in rows {
        html += "<tr>";
        for (position, (cell, (head, kind))) in row.iter().zip(heads).enumerate() {
            _ = match position {
                0 => write!(html, "<th scope=\"row\" class=\"{kind}\">{cell}</th>"),
                _ => write!(html, "<td class=\"{kind}\" data-label=\"{head}\">{cell}</td>"),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// Returns the table of all limits, with links to their sections if these exist.
pub(super) fn limits(caption: &str, report: &Report, is_linked: bool) -> String {
    let heads = [
        ("Limit", ""),
        ("Rate", ""),
        ("Allowed", "number"),
        ("Rejected", "number"),
        ("Peak use", "number"),
        ("Clients", "number"),
        ("Clients affected", "number"),
    ];
    let rows = report.limits.iter().enumerate().map(|(number, (name, limit))| {
        let name = Escaped(name).to_string();
        let name = if is_linked { format!("<a href=\"#limit-{number}\">{name}</a>") } else { name };
        [
            if limit.shadow { format!("{name} (shadow)") } else { name },
            rate(limit),
            grouped(limit.allowed),
            grouped(limit.rejected),
            format!("{:.0} %", limit.peak * 100.0),
            grouped(limit.clients as u64),
            format!("{} ({})", grouped(limit.affected as u64), percent(limit.affected as u64, limit.clients as u64)),
        ]
    });
    table(caption, heads, rows)
}

fn rate(limit: &LimitReport) -> String {
    format!("{} per {}, {}", grouped(limit.rate.into()), Escaped(&limit.interval), limit.algorithm)
}

/// Returns the section of a limit, and the data of its script.
pub(super) fn section(number: usize, name: &str, limit: &LimitReport) -> (String, Option<Rates>) {
    let id = format!("limit-{number}");
    let shadow = if limit.shadow { ", shadow: it rejects no requests" } else { "" };
    let mut html = format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n<p class=\"detail\">{}, {}{shadow}</p>\n",
        Escaped(name),
        rate(limit),
        limit.mode
    );
    let mut facts = vec![
        ("Allowed", grouped(limit.allowed)),
        (
            "Rejected",
            format!("{} ({})", grouped(limit.rejected), percent(limit.rejected, limit.allowed + limit.rejected)),
        ),
        ("Peak use", format!("{:.0} %", limit.peak * 100.0)),
        ("Clients", grouped(limit.clients as u64)),
        (
            "Clients affected",
            format!("{} ({})", grouped(limit.affected as u64), percent(limit.affected as u64, limit.clients as u64)),
        ),
    ];
    let rest = [("Without a client in the log", limit.unknown), ("With unverified credentials", limit.unverified)];
    facts.extend(rest.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, grouped(count))));
    html += &list("facts", facts);
    if limit.allowed + limit.rejected == 0 {
        return (html + "<p class=\"empty\">The limit has decided about no request.</p>\n</section>\n", None);
    }
    html += &over_time::figure(limit);
    let (figure, rates) = sorted::figure(&id, limit);
    html += &figure;
    html += "<h3>Clients rejected most</h3>\n";
    if limit.top.is_empty() {
        html += "<p class=\"empty\">No client was rejected.</p>\n";
    } else {
        let caption = format!("Clients rejected most by {}", Escaped(name));
        let heads =
            [("Client", "client"), ("Rejected", "number"), ("First rejection", "time"), ("Last rejection", "time")];
        let rows = limit.top.iter().map(|client| {
            let text = |text: &str| Escaped(text).to_string();
            [
                format!("<bdi>{}</bdi>", Escaped(&client.client)),
                grouped(client.count),
                text(&client.first),
                text(&client.last),
            ]
        });
        html += &table(&caption, heads, rows);
    }
    (html + "</section>\n", Some(rates))
}

/// Returns a list of names and values.
pub(super) fn list(class: &str, entries: impl IntoIterator<Item = (impl Display, impl Display)>) -> String {
    let mut html = format!("<dl class=\"{class}\">\n");
    for (name, value) in entries {
        _ = writeln!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    html + "</dl>\n"
}
