//! `tidegate demo`: runs a gateway without rule file or Redis, and prints commands to try.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::handover_session::HandoverSession;
use super::logging::{self, Logs};
use super::serve::{OnHangUp, serve};
use super::signals::Signals;
use super::{CommonArgs, ServeArgs};
use crate::gateway::{Gateway, GatewayStartError};
use tidegate_config::ListenAddress;

const RULES: &str = include_str!("../../config/demo.yaml");

/// Runs the demo. Returns the exit code.
pub(super) fn demo(args: &CommonArgs) -> u8 {
    match start(args) {
        Ok((gateway, runtime, signals, logs)) => {
            let args = ServeArgs {
                common: args.clone(),
                drain_timeout: Duration::from_secs(5),
                drain_delay: Duration::ZERO,
                no_watch: true,
                handover: None,
                state: None,
                name: None,
            };
            let hangup = OnHangUp { logs: &logs, rules: None };
            let served = runtime.block_on(serve(gateway, &args, signals, HandoverSession::default(), hangup));
            runtime.shutdown_background();
            served.map_or_else(|error| report_failure(&error), |()| 0)
        }
        Err(error) => report_failure(&*error),
    }
}

fn report_failure(error: &dyn std::error::Error) -> u8 {
    _ = writeln!(std::io::stderr(), "tidegate: {error}");
    2
}

type Started = (Gateway, Runtime, Signals, Logs);

fn start(args: &CommonArgs) -> Result<Started, Box<dyn std::error::Error>> {
    let mut config = Gateway::parse_config(RULES)?;
    // Falls back to free ports if the usual ones are taken.
    for listen in &mut config.listen {
        listen.address = free_address(&listen.address);
    }
    config.admin = config.admin.as_ref().map(free_address);
    let access_log = config.access_log.clone();
    let (runtime, signals) = Signals::install()?;
    let gateway: Result<Gateway, GatewayStartError> = Gateway::start(config, args.workers());
    let gateway = gateway?;
    print_instructions(&gateway)?;
    Ok((gateway, runtime, signals, logging::start(args, &access_log)?))
}

fn free_address(address: &ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) if TcpListener::bind(address).is_err() => SocketAddr::new(address.ip(), 0).into(),
        _ => address.clone(),
    }
}

fn print_instructions(gateway: &Gateway) -> std::io::Result<()> {
    let addresses = gateway.addresses();
    let Some(address) = addresses.first() else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "gateway    http://{address}/hello")?;
    if let Some(admin) = gateway.admin_address() {
        writeln!(out, "dashboard  http://{admin}/")?;
        writeln!(out, "metrics    http://{admin}/metrics")?;
    }
    writeln!(out, "\nten requests pass in ten seconds; the eleventh is rejected with 429:")?;
    writeln!(out, "  for i in $(seq 11); do curl -s -o /dev/null -w '%{{http_code}}\\n' http://{address}/hello; done")?;
    writeln!(out, "a rejection says when to retry:\n  curl -i http://{address}/hello")?;
    writeln!(
        out,
        "the route `keys` counts by API key:\n  curl -i -H 'x-api-key: alice' http://{address}/keys/hello\n"
    )?;
    if cfg!(debug_assertions) {
        writeln!(out, "this is a debug build, which is slow; build with `--release` for full speed")?;
    }
    writeln!(out, "the rules are in config/demo.yaml; press ctrl-c to stop; each request is a line below\n")?;
    out.flush()
}
