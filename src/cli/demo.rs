//! `tidegate demo`: a gateway without rule file or Redis, and commands to try on it.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::logging::{self, Logs};
use super::serve::serve;
use super::signals::Signals;
use super::succession::Succession;
use super::{CommonArgs, ConfigArg, RunArgs};
use crate::config::{Config, ListenAddress, RuleFile};
use crate::gateway::{Gateway, GatewayStartError};

const RULES: &str = include_str!("../../config/demo.yaml");

/// Runs the demo; returns the exit code.
pub(super) fn demo(args: &CommonArgs) -> u8 {
    match start(args) {
        Ok((gateway, runtime, signals, logs)) => {
            let args = RunArgs {
                rules: ConfigArg { config: RuleFile::Path("demo".into()) },
                common: args.clone(),
                drain_timeout: Duration::from_secs(5),
                drain_delay: Duration::ZERO,
                handover: None,
                state: None,
            };
            let served = runtime.block_on(serve(gateway, &args, signals, Succession::default(), &logs));
            runtime.shutdown_background();
            served.map_or_else(|error| could_not(&error), |()| 0)
        }
        Err(error) => could_not(&*error),
    }
}

fn could_not(error: &dyn std::error::Error) -> u8 {
    _ = writeln!(std::io::stderr(), "tidegate: {error}");
    2
}

type Started = (Gateway, Runtime, Signals, Logs);

fn start(args: &CommonArgs) -> Result<Started, Box<dyn std::error::Error>> {
    let mut config = Config::parse_for_gateway(RULES)?;
    // Falls back to free ports if the usual ones are taken.
    for listen in &mut config.listen {
        listen.address = free(&listen.address);
    }
    config.admin = config.admin.as_ref().map(free);
    let access_log = config.access_log.clone();
    let (runtime, signals) = Signals::install()?;
    let gateway: Result<Gateway, GatewayStartError> = Gateway::start(config, args.workers());
    let gateway = gateway?;
    print_what_to_try(&gateway)?;
    Ok((gateway, runtime, signals, logging::start(args, &access_log)?))
}

fn free(address: &ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) if TcpListener::bind(address).is_err() => SocketAddr::new(address.ip(), 0).into(),
        _ => address.clone(),
    }
}

fn print_what_to_try(gateway: &Gateway) -> std::io::Result<()> {
    let Some(address) = gateway.addresses().first() else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "try    http://{address}/hello")?;
    writeln!(out, "       ten requests in ten seconds pass, then 429 says when the next one will")?;
    if let Some(admin) = gateway.admin_address() {
        writeln!(out, "admin  http://{admin}/metrics")?;
    }
    writeln!(out)?;
    writeln!(out, "  curl -i http://{address}/hello")?;
    writeln!(out, "  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/hello; done")?;
    writeln!(out, "  curl -i -H 'x-api-key: alice' http://{address}/keys/hello")?;
    writeln!(out)?;
    if cfg!(debug_assertions) {
        writeln!(out, "this build was quick to make and is slow to answer; `--release` makes the fast one")?;
    }
    writeln!(out, "the rules are config/demo.yaml; ctrl-c ends")?;
    out.flush()
}
