//! Domains that survive a restart while the control plane cannot be reached: with `--state`.

use tokio::net::UnixStream;

use super::{edge, take};
use crate::handover::Socket;
use crate::support::control_plane::ControlPlane;
use crate::support::process::{Program, RuleFile, address, tidegate};
use crate::support::service::GrpcClient;
use crate::support::wire::{soon, until};

/// Starts the program with this rule file, and waits until it serves.
async fn run(file: &RuleFile, state: &str) -> Program {
    let mut command = tidegate(&["run", "-c", file.path(), "--state", state]);
    let mut program = Program::start(&mut command);
    let started = tokio::task::spawn_blocking(move || {
        address(&mut program.stderr, "admin on http://");
        program
    });
    soon(started).await.expect("a program")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_without_the_control_plane_keeps_its_domains() {
    let mut plane = ControlPlane::start().await;
    let (grpc, state) = (Socket::new("saved-grpc"), Socket::new("saved-state"));
    let (socket, url) = (grpc.path(), plane.address);
    let rules = |node: &str| {
        format!(
            "admin: 127.0.0.1:0\nservice: {{ grpc: 'unix:{socket}', descriptors: {{ xds: 'http://{url}', node: {node} }} }}\n"
        )
    };
    let file = RuleFile::new("saved-domains", &rules("tests"));
    let answer = async {
        let mut stream = plane.stream().await;
        stream.request().await;
        assert_eq!(stream.push_and_wait("1", "first", &[edge(7)]).await.error_detail, None);
        stream
    };
    let (program, stream) = tokio::join!(run(&file, state.path()), answer);
    let saved = format!("{}.domains", state.path());
    until(|| std::fs::exists(&saved).is_ok_and(|exists| exists)).await;
    drop((program, stream, plane));
    let limit = async || {
        let stream = soon(UnixStream::connect(grpc.path())).await.expect("a connection");
        take(&GrpcClient::on(stream).await, "ann").await.map(|(rate, _)| rate)
    };
    let program = run(&file, state.path()).await;
    assert_eq!(limit().await, Some(7));
    drop(program);
    // The saved domains are for another node.
    let other = RuleFile::new("saved-other", &rules("other"));
    let _program = run(&other, state.path()).await;
    assert_eq!(limit().await, None);
    std::fs::remove_file(saved).expect("removed");
}
