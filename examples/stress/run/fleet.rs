//! Gateways under load: real processes, each with an access log of its own for every time it was started.

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
use super::{Failed, Run};

/// The gateways of a run; ended with it.
#[derive(Debug)]
pub struct Fleet {
    binary: PathBuf,
    folder: PathBuf,
    redis: String,
    limits: Vec<Limit>,
    gateways: Vec<Gateway>,
    started: Vec<Started>,
    /// Where they are at present.
    pub addresses: Addresses,
}

/// A gateway that was started: by which rules it decided, and where it says so.
#[derive(Clone, Debug)]
pub struct Started {
    pub version: usize,
    pub access_log: PathBuf,
}

/// A gateway that runs; killed when it is dropped.
#[derive(Debug)]
struct Gateway {
    child: Child,
    version: usize,
}

/// How long a gateway may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(5);

impl Fleet {
    /// Starts the gateways of a run, each with one of these versions of the limits' rules after the other.
    pub async fn start(run: &Run, limits: &[Limit], versions: usize) -> Result<Self, Failed> {
        let (addresses, limits) = (Arc::new(RwLock::new(Vec::new())), limits.to_vec());
        let (binary, folder, redis) = (run.binary.clone(), run.folder.clone(), run.redis.clone());
        let mut fleet = Self { binary, folder, redis, limits, gateways: Vec::new(), started: Vec::new(), addresses };
        for gateway in 0..run.gateways {
            let (gateway, address) = fleet.open(gateway % versions).await?;
            fleet.gateways.push(gateway);
            fleet.addresses.write().push(address);
        }
        Ok(fleet)
    }

    pub fn len(&self) -> usize {
        self.gateways.len()
    }

    /// Starts a gateway anew, with the same rules or with the other ones, and drains the old process. For a while both
    /// decide.
    pub async fn restart(&mut self, number: usize, switch: bool) -> Result<(), Failed> {
        let version = (self.gateways[number].version + usize::from(switch)) % table::VERSIONS;
        let (gateway, address) = self.open(version).await?;
        self.addresses.write()[number] = address;
        std::mem::replace(&mut self.gateways[number], gateway).drain().await
    }

    /// Drains all of them, so that their logs are whole; returns every gateway there has been.
    pub async fn end(mut self) -> Result<Vec<Started>, Failed> {
        for gateway in std::mem::take(&mut self.gateways) {
            gateway.drain().await?;
        }
        Ok(std::mem::take(&mut self.started))
    }

    async fn open(&mut self, version: usize) -> Result<(Gateway, SocketAddr), Failed> {
        let file = |ending: &str| self.folder.join(format!("gateway-{}.{ending}", self.started.len()));
        let (rules, access_log, log) = (file("yaml"), file("access"), file("log"));
        fs::write(&rules, table::rule_file(&self.limits, version, &self.redis, &access_log.display().to_string()))?;
        let mut command = Command::new(&self.binary);
        command.arg("run").arg("-c").arg(&rules).args(["--log-format", "json", "--drain-timeout", "10"]);
        command.env_remove("TIDEGATE_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| format!("{} does not start: {error}", self.binary.display()))?;
        let mut gateway = Gateway { child, version };
        let address = gateway.address(&log).await?;
        self.started.push(Started { version, access_log });
        Ok((gateway, address))
    }
}

// === impl Gateway ===

impl Gateway {
    /// Waits until it says where it listens.
    async fn address(&mut self, log: &Path) -> Result<SocketAddr, Failed> {
        for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
            let text = fs::read_to_string(log)?;
            if let Some((_, rest)) = text.split_once("listening on http://")
                && let Some((address, _)) = rest.split_once('"')
            {
                return Ok(address.parse()?);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("a gateway ended with {status}: {text}").into());
            }
            sleep(GLANCE).await;
        }
        Err("a gateway does not say where it listens".into())
    }

    /// Lets it answer what it has begun, and waits for its end.
    async fn drain(mut self) -> Result<(), Failed> {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !kill.success() {
            return Err("a gateway is gone".into());
        }
        for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("a gateway ended with {status}").into()),
                None => sleep(GLANCE).await,
            }
        }
        Err("a gateway does not end".into())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
