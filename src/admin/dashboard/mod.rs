//! The dashboard at `/` of the admin listener: a page without external resources, and the events that it shows.

mod events;
mod frame;
mod history;
mod latency;
mod page;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

pub(super) use self::events::Events;
pub(super) use self::latency::Latency;
use super::Admin;
use super::problem::Problem;
use tidegate_config::dashboard::DashboardMode;

/// The paths of the page.
pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/", get(page::index)).route("/dashboard/{file}", get(page::file))
}

/// Streams the events of the dashboard: first the history of 15 minutes, then one event a second.
///
/// At most 32 viewers, then 503.
#[utoipa::path(
    get,
    path = "/events",
    tag = "state",
    responses(
        (status = 200, description = "A server-sent event for each second", body = String, content_type = "text/event-stream"),
        Problem
    )
)]
pub(super) async fn events(State(admin): State<Admin>) -> Result<Response, Problem> {
    admin.check_dashboard()?;
    let response = admin.events.view(|history, seconds| admin.frame(history, seconds))?;
    // Again: a reload may have turned the dashboard off, and ended the viewers before this one.
    admin.check_dashboard()?;
    Ok(response)
}

impl Admin {
    /// Reads the counters and finds the problems once a second.
    pub(crate) async fn run_history(self) {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            seconds.tick().await;
            self.find_problems();
            self.events.push(self.metrics.sample(), |history, seconds| self.frame(history, seconds));
        }
    }

    /// Adds the decisions of the last minute to each limit in the JSON of `/api/v1/limits`.
    pub(super) fn add_last_minute(&self, limits: &mut Value) {
        let names = |limit: &Value| {
            let name = |key: &str| limit[key].as_str().map(str::to_owned);
            Some((name("route")?, name("limit")?))
        };
        self.events.read(|history| {
            for limit in limits.as_array_mut().into_iter().flatten() {
                let sums = names(limit).and_then(|names| history.limits.get(&names)).map(|series| series.sum(60));
                let [allowed, limited, shadow_limited, store_failed] = sums.unwrap_or_default();
                limit["last_minute"] = json!({ "allowed": allowed, "limited": limited, "shadow_limited": shadow_limited, "store_failed": store_failed });
            }
        });
    }

    /// Returns the responses of a route in the last minute by kind, and its latency.
    pub(super) fn last_minute_of_route(&self, route: &str) -> ([u64; 5], Option<Latency>) {
        self.events.read(|history| {
            let responses = history.routes.get(route).map(|series| series.sum(60)).unwrap_or_default();
            (responses, history.latency(route))
        })
    }

    fn check_dashboard(&self) -> Result<(), Problem> {
        match self.active.load().config.dashboard {
            DashboardMode::Off => Err(Problem::new(StatusCode::NOT_FOUND, "the dashboard is off")),
            DashboardMode::On | DashboardMode::ReadOnly => Ok(()),
        }
    }
}
