//! What connections are waited for with, and how long, in virtual time.

use super::*;
use crate::server::head::Bounds;
use crate::server::pace::Demand;

const LIMITS: ConnectionLimits = ConnectionLimits {
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(75),
    body: Demand { timeout: Duration::from_secs(30), rate: 240 },
    max_requests: 10_000,
    max_streams: 100,
    head: Bounds { fields: 100, field_bytes: 16 * 1024, target: 8 * 1024 },
};

fn speaking(protocol: Protocol) -> Arc<Activity> {
    let activity = Arc::new(Activity::new(Instant::now()));
    activity.speaks(protocol);
    activity
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn waits(activity: &Activity) -> bool {
    matches!(activity.judge(&LIMITS), Verdict::Wait(_))
}

#[tokio::test(start_paused = true)]
async fn a_head_has_its_own_time_from_its_first_byte_on() {
    let activity = speaking(Protocol::Http1);
    activity.read(1);
    pass(6).await;
    activity.read(1);
    assert!(waits(&activity));
    pass(4).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Close(SLOW_HEAD));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_the_time_it_takes_and_the_wait_for_the_next_begins_after_it() {
    let activity = speaking(Protocol::Http1);
    activity.read(100);
    let request = activity.begin_request(false);
    pass(1000).await;
    assert!(waits(&activity));
    drop(request);
    pass(74).await;
    assert!(waits(&activity));
    pass(1).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Retire);
}

#[tokio::test(start_paused = true)]
async fn the_timer_never_sleeps_past_a_wait_that_may_begin_meanwhile() {
    let activity = speaking(Protocol::Http1);
    assert_eq!(activity.judge(&LIMITS), Verdict::Wait(Instant::now() + LIMITS.header_timeout));
    let _request = activity.begin_request(false);
    assert_eq!(activity.judge(&LIMITS), Verdict::Wait(Instant::now() + LIMITS.header_timeout));
}

#[tokio::test(start_paused = true)]
async fn a_connection_rests_a_while_after_its_last_request_was_read_and_answered_to_the_end() {
    let activity = speaking(Protocol::Http1);
    activity.read(100);
    let request = activity.begin_request(true);
    pass(5).await;
    drop(request);
    pass(5).await;
    assert!(!activity.rests());
    activity.end_upload();
    assert!(activity.rests());
    activity.read(1);
    assert!(!activity.rests());
    let request = activity.begin_request(false);
    drop(request);
    assert!(!activity.rests());
    pass(1).await;
    assert!(activity.rests());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_not_waited_for() {
    let activity = speaking(Protocol::Http1);
    let _request = activity.begin_request(false);
    activity.wrote(None);
    pass(20).await;
    activity.wrote(None);
    assert!(waits(&activity));
    pass(10).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Close(SLOW_READER));
    activity.wrote(Some(1 << 20));
    assert!(waits(&activity));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_byte_now_and_then_is_not_waited_for_either() {
    let activity = speaking(Protocol::Http1);
    let _request = activity.begin_request(false);
    activity.wrote(None);
    pass(29).await;
    assert!(waits(&activity));
    activity.wrote(Some(1));
    activity.wrote(None);
    pass(1).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Close(SLOW_READER));
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_timed_while_somebody_wants_more_of_it_and_the_next_one_begins_anew() {
    let activity = speaking(Protocol::Http1);
    let request = activity.begin_request(true);
    pass(1000).await;
    assert!(waits(&activity), "nobody has asked for it");
    activity.awaits_upload();
    pass(29).await;
    activity.read(1);
    activity.awaits_upload();
    pass(1).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::EndUpload);
    activity.leave_upload();
    assert!(waits(&activity));
    drop(request);
    let _next = activity.begin_request(true);
    activity.awaits_upload();
    pass(29).await;
    assert!(waits(&activity));
}

#[tokio::test(start_paused = true)]
async fn a_client_of_http2_has_a_heads_time_to_greet_and_may_then_be_idle() {
    let activity = speaking(Protocol::Http2);
    activity.read(24);
    pass(10).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Close(SLOW_HEAD));
    activity.read(9);
    assert!(waits(&activity));
    pass(65).await;
    assert_eq!(activity.judge(&LIMITS), Verdict::Retire);
}

fn wait(activity: &Activity) -> Option<(What, u64)> {
    activity.wait().map(|Wait { what, time }| (what, time.as_secs()))
}

#[tokio::test(start_paused = true)]
async fn a_connection_waits_for_its_client_unless_a_request_is_being_answered() {
    let activity = Arc::new(Activity::new(Instant::now()));
    pass(3).await;
    assert_eq!(wait(&activity), Some((What::Request, 3)));
    activity.speaks(Protocol::Http1);
    activity.read(1);
    pass(2).await;
    assert_eq!(wait(&activity), Some((What::Head, 2)));
    let request = activity.begin_request(true);
    pass(5).await;
    assert_eq!(wait(&activity), None);
    activity.awaits_upload();
    pass(6).await;
    assert_eq!(wait(&activity), Some((What::Upload, 6)));
    activity.read(1);
    assert_eq!(wait(&activity), None);
    activity.wrote(None);
    pass(7).await;
    assert_eq!(wait(&activity), Some((What::Answer, 7)));
    activity.wrote(Some(1));
    drop(request);
    pass(8).await;
    assert_eq!(wait(&activity), Some((What::Request, 8)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_streams_waits_for_its_client_when_all_of_them_do() {
    let activity = speaking(Protocol::Http2);
    activity.read(100);
    let _streams = [activity.begin_request(false), activity.begin_request(false)];
    activity.stream_waits();
    pass(5).await;
    assert_eq!(wait(&activity), None);
    activity.stream_waits();
    pass(2).await;
    assert_eq!(wait(&activity), Some((What::Streams, 2)));
    activity.stream_goes_on();
    assert_eq!(wait(&activity), None);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_switched_waits_since_a_byte_last_moved_either_way() {
    let activity = speaking(Protocol::Http1);
    let _request = activity.begin_request(false);
    pass(3).await;
    activity.switch();
    pass(4).await;
    assert_eq!(wait(&activity), Some((What::Switched, 4)));
    activity.read(1);
    pass(5).await;
    assert_eq!(wait(&activity), Some((What::Switched, 5)));
    activity.wrote(Some(1));
    pass(10_000).await;
    assert_eq!(wait(&activity), Some((What::Switched, 10_000)));
    assert!(waits(&activity) && !activity.rests());
}

#[tokio::test(start_paused = true)]
async fn tunnels_of_http2_wait_since_a_byte_last_moved_in_any_of_them() {
    let activity = speaking(Protocol::Http2);
    activity.read(100);
    let mut tunnels = [activity.begin_request(false), activity.begin_request(false)];
    tunnels[0].becomes_tunnel();
    pass(100).await;
    assert_eq!(wait(&activity), None, "a request is being answered");
    tunnels[1].becomes_tunnel();
    pass(4).await;
    assert_eq!(wait(&activity), Some((What::Switched, 4)));
    activity.read(17); // a PING is no byte of a tunnel
    pass(5).await;
    assert_eq!(wait(&activity), Some((What::Switched, 9)));
    activity.tunnel_moved();
    assert_eq!(wait(&activity), Some((What::Switched, 0)));
    drop(tunnels);
    pass(6).await;
    assert_eq!(wait(&activity), Some((What::Request, 6)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_tunnel_protects_no_stream_that_waits_for_its_client() {
    let activity = speaking(Protocol::Http2);
    activity.read(100);
    let (mut tunnel, _stream) = (activity.begin_request(false), activity.begin_request(false));
    tunnel.becomes_tunnel();
    pass(59).await;
    activity.stream_waits();
    assert_eq!(wait(&activity), None);
    pass(1).await;
    assert_eq!(wait(&activity), Some((What::Streams, 1)));
    let _active = activity.begin_request(false);
    assert_eq!(wait(&activity), None);
}
