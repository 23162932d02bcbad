//! A DNS server with records that a test changes.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

/// A DNS server on a free UDP port of loopback. Names without records do not exist.
#[derive(Clone)]
pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<String, (u32, Vec<RData>)>,
    failures: BTreeMap<String, Failure>,
    /// The time of each query for IPv4 addresses or services.
    queries: Vec<(String, Instant)>,
}

/// How the server fails for a name.
#[derive(Clone, Copy)]
pub enum Failure {
    ServFail,
    Silent,
}

impl DnsServer {
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("should bind");
        let address = socket.local_addr().expect("should have an address");
        let server = Self { address, state: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || serving.serve(&socket));
        server
    }

    /// Returns the rule-file key for this server.
    pub fn key(&self) -> String {
        format!("dns: {{ servers: ['{}'] }}", self.address)
    }

    /// Replaces the records of a name: addresses, another name, or `PRIORITY WEIGHT PORT TARGET`.
    pub fn set(&self, name: &str, ttl: u32, records: &[&str]) {
        let records = records.iter().map(|text| record(text)).collect();
        let mut state = self.state.0.lock();
        state.failures.remove(name);
        state.records.insert(name.to_owned(), (ttl, records));
    }

    /// Removes a name.
    pub fn remove(&self, name: &str) {
        self.state.0.lock().records.remove(name);
    }

    /// Ends the failures for a name.
    pub fn recover(&self, name: &str) {
        self.state.0.lock().failures.remove(name);
    }

    /// Fails for a name until its records are set again.
    pub fn fail(&self, name: &str, failure: Failure) {
        self.state.0.lock().failures.insert(name.to_owned(), failure);
    }

    /// Returns the times of the queries for a name so far.
    pub fn queries(&self, name: &str) -> Vec<Instant> {
        let state = self.state.0.lock();
        state.queries.iter().filter(|(queried, _)| queried == name).map(|(_, at)| *at).collect()
    }

    /// Waits for this number of further queries for a name.
    pub async fn queried(&self, name: &str, number: usize) {
        let (server, name) = (self.clone(), name.to_owned());
        let waited = tokio::task::spawn_blocking(move || {
            let (state, changed) = &*server.state;
            let mut state = state.lock();
            let count = |state: &State| state.queries.iter().filter(|(queried, _)| *queried == name).count();
            let goal = count(&state) + number;
            let limit = Duration::from_secs(40);
            let result = changed.wait_while_for(&mut state, |state| count(state) < goal, limit);
            assert!(!result.timed_out(), "waited {limit:?} for {number} queries for {name}");
        });
        waited.await.expect("the queries");
    }

    fn serve(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let Ok(query) = Message::from_vec(&buffer[..length]) else { continue };
            if let Some(reply) = self.reply(query) {
                socket.send_to(&reply.to_vec().expect("a packet"), client).expect("should send");
            }
        }
    }

    fn reply(&self, query: Message) -> Option<Message> {
        let question = query.queries.first().expect("a question").clone();
        let name = question.name().to_string().trim_end_matches('.').to_ascii_lowercase();
        let mut reply = query.into_response();
        let mut state = self.state.0.lock();
        if question.query_type() != RecordType::AAAA {
            state.queries.push((name.clone(), Instant::now()));
            self.state.1.notify_all();
        }
        match (state.failures.get(&name), state.records.get(&name)) {
            (Some(Failure::Silent), _) => return None,
            (Some(Failure::ServFail), _) => reply.metadata.response_code = ResponseCode::ServFail,
            (None, None) => reply.metadata.response_code = ResponseCode::NXDomain,
            (None, Some((ttl, records))) => {
                let matching = records
                    .iter()
                    .filter(|data| data.record_type() == question.query_type() || matches!(data, RData::CNAME(_)));
                let owner = question.name().clone();
                reply.add_answers(matching.map(|data| Record::from_rdata(owner.clone(), *ttl, data.clone())));
            }
        }
        Some(reply)
    }
}

fn record(text: &str) -> RData {
    let name = |text: &str| Name::from_ascii(format!("{text}.")).expect("a name");
    if let Ok(address) = text.parse() {
        return match address {
            std::net::IpAddr::V4(address) => RData::A(A(address)),
            std::net::IpAddr::V6(address) => RData::AAAA(AAAA(address)),
        };
    }
    match text.split(' ').collect::<Vec<_>>()[..] {
        [priority, weight, port, target] => {
            let number = |text: &str| text.parse().expect("a number");
            RData::SRV(SRV::new(number(priority), number(weight), number(port), name(target)))
        }
        _ => RData::CNAME(CNAME(name(text))),
    }
}
