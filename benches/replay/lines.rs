//! Lines of access logs: 100 in each second, with different clients and paths.

fn client(number: usize) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

fn time(number: usize) -> String {
    format!("{:02}:{:02}:{:02}", number / 360_000 % 24, number / 6_000 % 60, number / 100 % 60)
}

fn path(number: usize) -> String {
    format!("/api/v1/things/{}?page={}", number % 7_919, number % 10)
}

pub(crate) fn combined(number: usize) -> String {
    combined_of(number, number)
}

/// Returns a line of this client.
pub(crate) fn combined_of(number: usize, of: usize) -> String {
    format!(
        r#"{} - - [26/Nov/2026:{} +0100] "GET {} HTTP/1.1" 200 {} "https://www.example.com/start" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36""#,
        client(of),
        time(number),
        path(number),
        number % 5_000,
    )
}

pub(crate) fn nginx(number: usize) -> String {
    format!(
        r#"{{"time_iso8601":"2026-11-26T{}+01:00","remote_addr":"{}","request":"GET {} HTTP/1.1","status":200,"host":"example.com","request_time":0.003,"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64)"}}"#,
        time(number),
        client(number),
        path(number),
    )
}

pub(crate) fn haproxy(number: usize) -> String {
    format!(
        r#"{}:33317 [26/Nov/2026:{}.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET {} HTTP/1.1""#,
        client(number),
        time(number),
        path(number),
    )
}

pub(crate) fn text(number: usize) -> String {
    format!(
        r#"2026-11-26T{}.000000Z  INFO GET {} status=200 route="api" limits="allowed" upstream="orders" target="http://10.0.1.5:9000" attempts=1 at=1795673435123 client={} peer=10.0.0.7 bytes=512 bytes_in=0 wait_ms=0.021 head_ms=3.127 ms=3.201 protocol="HTTP/1.1" host="api.example""#,
        time(number),
        path(number),
        client(number),
    )
}

pub(crate) fn json(number: usize) -> String {
    format!(
        r#"{{"timestamp":"2026-11-26T{}.000000Z","level":"INFO","message":"GET /orders","status":200,"route":"api","limits":"allowed","at":1795673435123,"client":"{}","peer":"10.0.0.7","bytes":256,"bytes_in":0,"wait_ms":0.021,"head_ms":0.127,"ms":0.201,"protocol":"HTTP/1.1","method":"GET","path":"{}","host":"api.example","user_agent":"curl/8.5.0"}}"#,
        time(number),
        client(number),
        path(number),
    )
}
