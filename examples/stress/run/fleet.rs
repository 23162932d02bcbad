//! The gateways under load: processes that are restarted, each with a separate access log.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::sleep;

use super::load::Addresses;
use super::table::{self, Limit};
use super::{Run, RunError};

/// The gateways of a run. Dropping it kills them.
#[derive(Debug)]
pub struct Fleet {
    binary: PathBuf,
    folder: PathBuf,
    store: String,
    limits: Vec<Limit>,
    gateways: Vec<Gateway>,
    started: Vec<StartedGateway>,
    /// The current addresses of the gateways.
    pub addresses: Addresses,
}

/// The rules and the access log of a process.
#[derive(Clone, Debug)]
pub struct StartedGateway {
    pub version: usize,
    /// The rule file.
    pub rules: PathBuf,
    pub access_log: PathBuf,
}

/// A running gateway. Dropping it kills the process.
#[derive(Debug)]
struct Gateway {
    child: Child,
    version: usize,
}

/// The longest time for a gateway to start or exit.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Fleet {
    /// Starts the gateways of a run. The versions of the rules alternate between them.
    pub async fn start(run: &Run, limits: &[Limit], versions: usize) -> Result<Self, RunError> {
        let (addresses, limits) = (Arc::new(RwLock::new(Vec::new())), limits.to_vec());
        let (binary, folder, store) = (run.binary.clone(), run.folder.clone(), run.store());
        let mut fleet = Self { binary, folder, store, limits, gateways: Vec::new(), started: Vec::new(), addresses };
        for gateway in 0..run.gateways {
            let (gateway, address) = fleet.start_gateway(gateway % versions).await?;
            fleet.gateways.push(gateway);
            fleet.addresses.write().push(address);
        }
        Ok(fleet)
    }

    pub fn len(&self) -> usize {
        self.gateways.len()
    }

    /// Replaces a gateway with a new process, with the same rules or with the other version. Drains the old process;
    /// both decide in the meantime.
    pub async fn restart(&mut self, number: usize, switch: bool) -> Result<(), RunError> {
        let version = (self.gateways[number].version + usize::from(switch)) % table::VERSIONS;
        let (gateway, address) = self.start_gateway(version).await?;
        self.addresses.write()[number] = address;
        std::mem::replace(&mut self.gateways[number], gateway).drain().await
    }

    /// Drains all gateways, so that their logs are complete. Returns all processes of the run.
    pub async fn drain_all(mut self) -> Result<Vec<StartedGateway>, RunError> {
        for gateway in std::mem::take(&mut self.gateways) {
            gateway.drain().await?;
        }
        Ok(std::mem::take(&mut self.started))
    }

    async fn start_gateway(&mut self, version: usize) -> Result<(Gateway, SocketAddr), RunError> {
        let file = |ending: &str| self.folder.join(format!("gateway-{}.{ending}", self.started.len()));
        let (rules, access_log, log) = (file("yaml"), file("access"), file("log"));
        fs::write(&rules, table::rule_file(&self.limits, version, &self.store, &access_log.display().to_string()))?;
        let mut command = Command::new(&self.binary);
        command.arg("run").arg("-c").arg(&rules).args(["--log-format", "json", "--drain-timeout", "10"]);
        command.env_remove("TIDEGATE_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| format!("{} does not start: {error}", self.binary.display()))?;
        let mut gateway = Gateway { child, version };
        let address = gateway.address(&log).await?;
        self.started.push(StartedGateway { version, rules, access_log });
        Ok((gateway, address))
    }
}

// === impl Gateway ===

impl Gateway {
    /// Waits until the log contains the address of the gateway.
    async fn address(&mut self, log: &Path) -> Result<SocketAddr, RunError> {
        for _ in 0..PROCESS_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
            let text = fs::read_to_string(log)?;
            if let Some((_, rest)) = text.split_once("listening on http://")
                && let Some((address, _)) = rest.split_once('"')
            {
                return Ok(address.parse()?);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("a gateway exited with {status}: {text}").into());
            }
            sleep(POLL_INTERVAL).await;
        }
        Err("a gateway does not log its address".into())
    }

    /// Sends SIGTERM, and waits until the gateway has drained and exited.
    async fn drain(mut self) -> Result<(), RunError> {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !kill.success() {
            return Err("a gateway has exited early".into());
        }
        for _ in 0..PROCESS_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a gateway exited with {status}").into()),
                None => sleep(POLL_INTERVAL).await,
            }
        }
        Err("a gateway does not exit".into())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Normally, the process has exited before.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
