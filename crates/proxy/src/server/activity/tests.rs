//! Waits and timeouts, in virtual time.

use super::*;
use crate::server::ConnectionLimits;
use crate::server::transfer_rate::MinRate;
use tidegate_rules::evaluation::HeadLimits;

const LIMITS: ConnectionLimits = ConnectionLimits {
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(75),
    body: MinRate { timeout: Duration::from_secs(30), rate: 240 },
    max_requests: 10_000,
    max_streams: 100,
    head: HeadLimits { fields: 100, field_bytes: 16 * 1024, target: 8 * 1024 },
};

fn with_protocol(protocol: Protocol) -> Arc<Activity> {
    let activity = Arc::new(Activity::new(Instant::now()));
    activity.set_protocol(protocol);
    activity
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn keeps_waiting(activity: &Activity) -> bool {
    matches!(activity.check_timers(&LIMITS), TimerAction::Wait(_))
}

#[tokio::test(start_paused = true)]
async fn head_timeout_starts_at_the_first_byte() {
    let activity = with_protocol(Protocol::Http1);
    activity.record_read(1);
    pass(6).await;
    activity.record_read(1);
    assert!(keeps_waiting(&activity));
    pass(4).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Close(SLOW_HEAD));
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_starts_after_the_request() {
    let activity = with_protocol(Protocol::Http1);
    activity.record_read(100);
    let request = activity.begin_request(false);
    pass(1000).await;
    assert!(keeps_waiting(&activity));
    drop(request);
    pass(74).await;
    assert!(keeps_waiting(&activity));
    pass(1).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Finish);
}

#[tokio::test(start_paused = true)]
async fn timer_fires_no_later_than_the_shortest_timeout() {
    let activity = with_protocol(Protocol::Http1);
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Wait(Instant::now() + LIMITS.header_timeout));
    let _request = activity.begin_request(false);
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Wait(Instant::now() + LIMITS.header_timeout));
}

#[tokio::test(start_paused = true)]
async fn connection_is_idle_a_while_after_its_last_request() {
    let activity = with_protocol(Protocol::Http1);
    activity.record_read(100);
    let request = activity.begin_request(true);
    pass(5).await;
    drop(request);
    pass(5).await;
    assert!(!activity.is_idle());
    activity.end_upload();
    assert!(activity.is_idle());
    activity.record_read(1);
    assert!(!activity.is_idle());
    let request = activity.begin_request(false);
    drop(request);
    assert!(!activity.is_idle());
    pass(1).await;
    assert!(activity.is_idle());
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_times_out() {
    let activity = with_protocol(Protocol::Http1);
    let _request = activity.begin_request(false);
    activity.record_write(None);
    pass(20).await;
    activity.record_write(None);
    assert!(keeps_waiting(&activity));
    pass(10).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Close(SLOW_READER));
    activity.record_write(Some(1 << 20));
    assert!(keeps_waiting(&activity));
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_single_bytes_times_out() {
    let activity = with_protocol(Protocol::Http1);
    let _request = activity.begin_request(false);
    activity.record_write(None);
    pass(29).await;
    assert!(keeps_waiting(&activity));
    activity.record_write(Some(1));
    activity.record_write(None);
    pass(1).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Close(SLOW_READER));
}

#[tokio::test(start_paused = true)]
async fn upload_is_timed_only_while_it_is_read() {
    let activity = with_protocol(Protocol::Http1);
    let request = activity.begin_request(true);
    pass(1000).await;
    assert!(keeps_waiting(&activity), "the body is not being read");
    activity.begin_upload_wait();
    pass(29).await;
    activity.record_read(1);
    activity.begin_upload_wait();
    pass(1).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::EndUpload);
    activity.stop_upload_wait();
    assert!(keeps_waiting(&activity));
    drop(request);
    let _next = activity.begin_request(true);
    activity.begin_upload_wait();
    pass(29).await;
    assert!(keeps_waiting(&activity));
}

#[tokio::test(start_paused = true)]
async fn http2_handshake_has_the_header_timeout() {
    let activity = with_protocol(Protocol::Http2);
    activity.record_read(24);
    pass(10).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Close(SLOW_HEAD));
    activity.record_read(9);
    assert!(keeps_waiting(&activity));
    pass(65).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Finish);
}

fn wait(activity: &Activity) -> Option<(WaitReason, u64)> {
    activity.client_wait().map(|ClientWait { reason, duration }| (reason, duration.as_secs()))
}

#[tokio::test(start_paused = true)]
async fn client_wait_has_a_reason_unless_a_request_runs() {
    let activity = Arc::new(Activity::new(Instant::now()));
    pass(3).await;
    assert_eq!(wait(&activity), Some((WaitReason::Request, 3)));
    activity.set_protocol(Protocol::Http1);
    activity.record_read(1);
    pass(2).await;
    assert_eq!(wait(&activity), Some((WaitReason::Head, 2)));
    let request = activity.begin_request(true);
    pass(5).await;
    assert_eq!(wait(&activity), None);
    activity.begin_upload_wait();
    pass(6).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upload, 6)));
    activity.record_read(1);
    assert_eq!(wait(&activity), None);
    activity.record_write(None);
    pass(7).await;
    assert_eq!(wait(&activity), Some((WaitReason::Response, 7)));
    activity.record_write(Some(1));
    drop(request);
    pass(8).await;
    assert_eq!(wait(&activity), Some((WaitReason::Request, 8)));
}

#[tokio::test(start_paused = true)]
async fn http2_connection_waits_only_if_all_streams_wait() {
    let activity = with_protocol(Protocol::Http2);
    activity.record_read(100);
    let _streams = [activity.begin_request(false), activity.begin_request(false)];
    activity.begin_stream_wait();
    pass(5).await;
    assert_eq!(wait(&activity), None);
    activity.begin_stream_wait();
    pass(2).await;
    assert_eq!(wait(&activity), Some((WaitReason::Streams, 2)));
    activity.end_stream_wait();
    assert_eq!(wait(&activity), None);
}

#[tokio::test(start_paused = true)]
async fn upgraded_connection_waits_since_its_last_byte() {
    let activity = with_protocol(Protocol::Http1);
    let _request = activity.begin_request(false);
    pass(3).await;
    activity.set_upgraded();
    pass(4).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 4)));
    activity.record_read(1);
    pass(5).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 5)));
    activity.record_write(Some(1));
    pass(10_000).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 10_000)));
    assert!(keeps_waiting(&activity) && !activity.is_idle());
}

#[tokio::test(start_paused = true)]
async fn http2_tunnels_wait_since_the_last_byte_of_any() {
    let activity = with_protocol(Protocol::Http2);
    activity.record_read(100);
    let mut tunnels = [activity.begin_request(false), activity.begin_request(false)];
    tunnels[0].set_tunnel();
    pass(100).await;
    assert_eq!(wait(&activity), None, "a request is being answered");
    tunnels[1].set_tunnel();
    pass(4).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 4)));
    activity.record_read(17); // a PING carries no tunnel bytes
    pass(5).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 9)));
    activity.record_tunnel_bytes();
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 0)));
    drop(tunnels);
    pass(6).await;
    assert_eq!(wait(&activity), Some((WaitReason::Request, 6)));
}

#[tokio::test(start_paused = true)]
async fn silent_tunnel_does_not_protect_a_waiting_stream() {
    let activity = with_protocol(Protocol::Http2);
    activity.record_read(100);
    let (mut tunnel, _stream) = (activity.begin_request(false), activity.begin_request(false));
    tunnel.set_tunnel();
    pass(59).await;
    activity.begin_stream_wait();
    assert_eq!(wait(&activity), None);
    pass(1).await;
    assert_eq!(wait(&activity), Some((WaitReason::Streams, 1)));
    let _active = activity.begin_request(false);
    assert_eq!(wait(&activity), None);
}
