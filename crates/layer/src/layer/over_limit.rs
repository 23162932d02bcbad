//! Forwards requests over a limit: `on_limit` of a route.

use http::{HeaderValue, Request};

use super::record::RequestRecord;
use crate::ruleset::{ForwardContext, FoundRoute};
use tidegate_rules::route::OnLimit;
use tidegate_rules::rules::Charges;

/// Prepares a request that the limits have admitted with these charges. A client cannot set the field that marks requests.
pub(super) fn forward<B>(
    request: &mut Request<B>,
    context: &mut ForwardContext,
    charges: &Charges<'_>,
    (worker, record): (Option<usize>, &RequestRecord<'_>),
) {
    let Some(FoundRoute { route, compiled }) = record.found else { return };
    match &route.on_limit {
        None => {}
        Some(OnLimit::Mark(name)) => match names(charges) {
            None => _ = request.headers_mut().remove(name),
            Some(names) => _ = request.headers_mut().insert(name, names),
        },
        Some(OnLimit::Upstream(_)) if charges.exceeded().next().is_some() => {
            context.upstream = compiled.upstream_over_limit(worker);
        }
        Some(OnLimit::Upstream(_)) => {}
    }
}

/// Returns the names of the limits that would have rejected the request. Returns `None` if it is within all limits.
fn names(charges: &Charges<'_>) -> Option<HeaderValue> {
    let mut names: Vec<&str> = Vec::new();
    for entry in charges.exceeded() {
        if !names.contains(&entry.limit.name.as_str()) {
            names.push(&entry.limit.name);
        }
    }
    HeaderValue::try_from(names.join(", ")).ok().filter(|_| !names.is_empty())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::sync::Arc;

    use http::{Request, Response, StatusCode};
    use parking_lot::Mutex;
    use tower::{Layer, ServiceExt, service_fn};

    use crate::layer::RateLimitLayer;

    #[tokio::test]
    async fn handler_receives_the_mark_and_no_forged_one() {
        let rules = "routes: [{ name: all, match: {}, on_limit: { mark: x-over }, limits: [
            { name: a, mode: OVERALL, rate: 1, interval: 1h }, { name: b, mode: OVERALL, rate: 2, interval: 1h } ] }]";
        let layer = RateLimitLayer::from_yaml(rules).expect("valid rules");
        let marks = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..3 {
            let marks = Arc::clone(&marks);
            let record = move |request: Request<()>| {
                let mark = request.headers().get("x-over").map(|mark| mark.to_str().expect("ASCII").to_owned());
                marks.lock().push(mark);
                ready(Ok::<_, Infallible>(Response::new(())))
            };
            let request = Request::get("/").header("host", "a").header("x-over", "forged").body(()).expect("a request");
            let response = layer.layer(service_fn(record)).oneshot(request).await.expect("infallible");
            assert_eq!(response.status(), StatusCode::OK);
        }
        assert_eq!(*marks.lock(), [None, Some("a".to_owned()), Some("a, b".to_owned())]);
    }
}
