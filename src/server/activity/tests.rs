//! What connections are waited for with, and how long, in virtual time.

use super::*;
use crate::server::head::HeadLimits;
use crate::server::transfer_rate::MinRate;

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
async fn a_head_has_its_own_time_from_its_first_byte_on() {
    let activity = with_protocol(Protocol::Http1);
    activity.record_read(1);
    pass(6).await;
    activity.record_read(1);
    assert!(keeps_waiting(&activity));
    pass(4).await;
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Close(SLOW_HEAD));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_the_time_it_takes_and_the_wait_for_the_next_begins_after_it() {
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
async fn the_timer_never_sleeps_past_a_wait_that_may_begin_meanwhile() {
    let activity = with_protocol(Protocol::Http1);
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Wait(Instant::now() + LIMITS.header_timeout));
    let _request = activity.begin_request(false);
    assert_eq!(activity.check_timers(&LIMITS), TimerAction::Wait(Instant::now() + LIMITS.header_timeout));
}

#[tokio::test(start_paused = true)]
async fn a_connection_rests_a_while_after_its_last_request_was_read_and_answered_to_the_end() {
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
async fn a_client_that_does_not_read_is_not_waited_for() {
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
async fn a_client_that_reads_a_byte_now_and_then_is_not_waited_for_either() {
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
async fn an_upload_is_timed_while_somebody_wants_more_of_it_and_the_next_one_begins_anew() {
    let activity = with_protocol(Protocol::Http1);
    let request = activity.begin_request(true);
    pass(1000).await;
    assert!(keeps_waiting(&activity), "nobody has asked for it");
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
async fn a_client_of_http2_has_a_heads_time_to_greet_and_may_then_be_idle() {
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
async fn a_connection_waits_for_its_client_unless_a_request_is_being_answered() {
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
async fn a_connection_with_streams_waits_for_its_client_when_all_of_them_do() {
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
async fn a_connection_that_was_switched_waits_since_a_byte_last_moved_either_way() {
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
async fn tunnels_of_http2_wait_since_a_byte_last_moved_in_any_of_them() {
    let activity = with_protocol(Protocol::Http2);
    activity.record_read(100);
    let mut tunnels = [activity.begin_request(false), activity.begin_request(false)];
    tunnels[0].set_tunnel();
    pass(100).await;
    assert_eq!(wait(&activity), None, "a request is being answered");
    tunnels[1].set_tunnel();
    pass(4).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 4)));
    activity.record_read(17); // a PING is no byte of a tunnel
    pass(5).await;
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 9)));
    activity.record_tunnel_bytes();
    assert_eq!(wait(&activity), Some((WaitReason::Upgraded, 0)));
    drop(tunnels);
    pass(6).await;
    assert_eq!(wait(&activity), Some((WaitReason::Request, 6)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_tunnel_protects_no_stream_that_waits_for_its_client() {
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
