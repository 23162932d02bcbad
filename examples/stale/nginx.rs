//! An nginx that is reloaded repeatedly.

use std::error::Error;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// A running nginx. Dropping it stops nginx.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: PathBuf,
}

/// Starts nginx. Returns `None` if it is not installed.
pub(crate) async fn start() -> Result<Option<Nginx>, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("tidegate-stale-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let at = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let config = format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; {temporary} server {{ listen {address}; return 200 ok; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config)?;
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(&file).stderr(Stdio::null());
    let process = match nginx.spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        started => started?,
    };
    let nginx = Nginx { address, process, folder };
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    Ok(Some(nginx))
}

impl Nginx {
    pub(crate) async fn reload(&self, times: u32, pause: Duration) -> io::Result<()> {
        for _ in 0..times {
            sleep(pause).await;
            signal(&self.process, "HUP")?;
        }
        Ok(())
    }
}

fn signal(process: &Child, name: &str) -> io::Result<()> {
    Command::new("kill").arg(format!("-{name}")).arg(process.id().to_string()).status().map(|_| ())
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Errors of the cleanup do not matter.
        _ = signal(&self.process, "TERM");
        _ = self.process.wait();
        _ = fs::remove_dir_all(&self.folder);
    }
}
