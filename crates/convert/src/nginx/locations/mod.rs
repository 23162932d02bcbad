//! Locations: the routes of a server, in the order in which nginx selects them.

mod access;
mod action;
mod found;
mod guards;

use std::rc::Rc;

use self::found::{Found, Location, Pattern};
use super::Conversion;
use super::action::Action;
use super::scope::Scope;
use super::servers::{MAX_ROUTES, Server};
use super::syntax::Directive;
use super::values::units;
use crate::draft::value::{Map, Value};
use crate::draft::{Match, Route};
use crate::error::ConvertError;

/// The largest request body without `client_max_body_size`, in bytes.
const DEFAULT_MAX_BODY: u64 = 1 << 20;

/// The most pairs of a host and a path of a route.
const MAX_PAIRS: usize = 1_000;

/// A block whose requests a route forwards or answers: a location, or the server itself.
pub(super) struct Target<'r, 'c> {
    pub(super) server: &'r Server<'c>,
    pub(super) scope: &'r Rc<Scope<'c>>,
    /// The block whose limits apply.
    limits: &'r Rc<Scope<'c>>,
    location: Option<&'r Location<'c>>,
    /// The name that its routes should have.
    wish: String,
    /// The lost protection of the location that uses this named location.
    closed: Option<String>,
}

// === impl Conversion ===

impl<'c> Conversion<'c, '_> {
    /// Writes the routes of a server. `base` has its hosts and listeners.
    ///
    /// # Errors
    /// Fails if the server has too many locations.
    pub(super) fn server_routes(
        &mut self,
        server: &Server<'c>,
        base: &Match,
        has_others: bool,
    ) -> Result<(), ConvertError> {
        let prefix = if has_others { server_prefix(server) } else { String::new() };
        let whole = Match { paths: vec!["/**".to_owned()], ..base.clone() };
        let target = Target {
            server,
            scope: &server.scope,
            limits: &server.scope,
            location: None,
            wish: format!("{prefix}{}", name_of("/")),
            closed: None,
        };
        self.conditional_routes(&target, &whole);
        if let Some(action) = self.early_action(&target) {
            self.note_unlimited(target.scope);
            self.push(&target, server.directive, whole, action);
            return Ok(());
        }
        let mut found = Found::default();
        self.collect(&server.scope, None, &mut found)?;
        for location in found.in_order() {
            let wish = format!("{prefix}{}", name_of(location.pattern.text()));
            let (scope, location) = (&location.scope, &location);
            let target = Target { server, scope, limits: scope, location: Some(location), wish, closed: None };
            self.location_routes(&target, location, location.matches(base));
        }
        // Files and responses of the server itself, unless a location has all other paths.
        if self.reach.can_reach(&whole) {
            let action = self.action(&target);
            self.push(&target, server.directive, whole, action);
        }
        self.lose_named(server);
        Ok(())
    }

    /// Notes the named locations that no other location uses.
    fn lose_named(&mut self, server: &Server<'c>) {
        for named in server.scope.own("location").iter().filter(|location| is_named(location)) {
            if !self.notes.has(named) {
                self.lose(named, "clients cannot request a named location");
            }
        }
    }

    fn location_routes(&mut self, target: &Target<'_, 'c>, location: &Location<'c>, matches: Match) {
        self.conditional_routes(target, &matches);
        if let Some(action) = self.early_action(target) {
            self.note_unlimited(target.scope);
            self.push_location(target, location, matches, action);
        } else if location.is_internal {
            self.push_location(target, location, matches, Action::response(404));
        } else if self.access_routes(target, location.directive, &matches) {
            location.note(&mut self.notes);
        } else if let Some(named) = self.fallback(target) {
            self.limit_except(target, &matches);
            let scope = Scope::new(Some(&target.server.scope), named.inner());
            // nginx counts a request once: in the location, or else in the named one.
            let limits = if target.scope.all("limit_req").is_empty() { &scope } else { target.scope };
            let (wish, closed) = (target.wish.clone(), self.lost_guard(target));
            let target = Target { scope: &scope, limits, location: None, wish, closed, ..*target };
            let action = self.action(&target);
            self.push_location(&target, location, matches, action);
        } else {
            self.limit_except(target, &matches);
            let action = self.action(target);
            self.push_location(target, location, matches, action);
        }
    }

    fn push_location(&mut self, target: &Target<'_, 'c>, location: &Location<'c>, matches: Match, action: Action) {
        if self.push(target, location.directive, matches, action) {
            location.note(&mut self.notes);
        } else {
            self.notes.lost(location.directive, "no request reaches it: earlier routes match all of its paths");
        }
    }

    /// Returns the named location that `try_files` uses for requests without a file.
    fn fallback(&mut self, target: &Target<'_, 'c>) -> Option<&'c Directive> {
        let directive = target.scope.own_first("try_files")?;
        let name = directive.texts().last().filter(|name| name.starts_with('@'))?;
        let locations = target.server.scope.own("location");
        let named = locations.iter().copied().find(|location| location.arg(0) == Some(name))?;
        self.notes.lost(directive, format!("files are not served: all requests go to {name}"));
        self.notes.same(named, "the requests of `try_files`");
        Some(named)
    }

    /// Adds a route of a block. Returns `false` if no request can reach it.
    pub(super) fn push(
        &mut self,
        target: &Target<'_, 'c>,
        directive: &Directive,
        matches: Match,
        action: Action,
    ) -> bool {
        let pairs = MAX_PAIRS / matches.paths.len().max(1);
        if matches.hosts.len() > pairs.max(1) {
            let chunks = matches.hosts.chunks(pairs.max(1)).map(<[String]>::to_vec);
            let parts: Vec<_> = chunks.map(|hosts| Match { hosts, ..matches.clone() }).collect();
            let added = parts.into_iter().map(|part| self.push(target, directive, part, action.clone()));
            return added.filter(|added| *added).count() > 0;
        }
        // `servers` reports the bound after the server.
        if self.draft.routes.len() > MAX_ROUTES || !self.reach.add(&matches) {
            return false;
        }
        let mut route = Route {
            name: self.draft.route_name(&target.wish),
            matches,
            upstream: action.upstream,
            more: action.more,
            place: Some(directive.place.clone()),
            ..Route::default()
        };
        if !action.is_unlimited {
            route.limits = self.limits(target.limits, &target.server.names.first);
            route.concurrency = self.concurrency(target.limits);
            self.set_reject(target.limits, &mut route);
        }
        if let Some(setting) = target.closed.clone().or_else(|| self.lost_guard(target)) {
            route.close(setting);
        }
        self.set_max_body(target.scope, &mut route);
        self.response_headers(target.scope, &mut route.more);
        self.draft.routes.push(route);
        true
    }

    /// Sets the status of rejected requests.
    fn set_reject(&mut self, scope: &Scope<'c>, route: &mut Route) {
        let Some(directive) = scope.last("limit_req_status").filter(|_| !route.limits.is_empty()) else { return };
        match directive.arg(0).and_then(|status| status.parse::<u32>().ok()) {
            Some(429) => self.notes.same(directive, "the default"),
            Some(status @ 400..=599) => {
                route.reject = Map::of([
                    ("status", status.into()),
                    ("content_type", "text/plain; charset=utf-8".into()),
                    ("body", "too many requests".into()),
                ]);
                self.notes.same(directive, "`reject`");
            }
            _ => self.notes.lost(directive, "the status is not within 400 and 599"),
        }
    }

    fn set_max_body(&mut self, scope: &Scope<'c>, route: &mut Route) {
        let directive = scope.last("client_max_body_size");
        let size = match directive.map(|directive| directive.arg(0).and_then(units::size)) {
            None => Some(DEFAULT_MAX_BODY),
            Some(size) => size,
        };
        if route.upstream.is_some() {
            // 0 turns the check off.
            let shown = |size| if size == 0 { "none".to_owned() } else { units::shown_size(size) };
            route.more.set_some("max_body", size.map(|size| Value::Text(shown(size))));
        }
        match (directive, size) {
            (Some(directive), Some(_)) => self.notes.same(directive, "`max_body`"),
            (Some(directive), None) => self.notes.lost(directive, "not a size"),
            (None, _) => {}
        }
    }

    /// Adds the locations of a block to `found`.
    fn collect(
        &mut self,
        scope: &Rc<Scope<'c>>,
        outer: Option<&Location<'c>>,
        found: &mut Found<'c>,
    ) -> Result<(), ConvertError> {
        for directive in scope.own("location") {
            if found.len() >= MAX_ROUTES {
                return Err(ConvertError::Bound(format!("a server has more than {MAX_ROUTES} locations")));
            }
            let inner = Scope::new(Some(scope), directive.inner());
            match Location::new(directive, Rc::clone(&inner), outer) {
                Ok(location) => {
                    self.collect(&inner, Some(&location), found)?;
                    found.add(location, outer);
                }
                Err(_) if is_named(directive) => {}
                Err(reason) => self.lose(directive, &format!("{reason}; its requests reach other routes")),
            }
        }
        Ok(())
    }

    /// Notes a location that has no route, and all of its settings.
    fn lose(&mut self, directive: &Directive, reason: &str) {
        self.notes.lost(directive, reason);
        for inner in directive.inner() {
            let kind = super::settings::kind(inner.name(), "location");
            if kind != super::settings::Kind::Other {
                self.lose(inner, "its location has no route");
            }
        }
    }
}

/// Returns the start of the names of the routes of a server.
fn server_prefix(server: &Server<'_>) -> String {
    match server.names.first.as_str() {
        "" | "_" => "default-".to_owned(),
        name => format!("{name}-"),
    }
}

/// Returns `true` for a location that only other locations use.
fn is_named(location: &Directive) -> bool {
    location.arg(0).is_some_and(|name| name.starts_with('@'))
}

/// Returns the name of a route for the pattern of its location.
fn name_of(pattern: &str) -> String {
    let words = pattern.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<_> = words.collect();
    if words.is_empty() { "root".to_owned() } else { words.join("-") }
}

// === impl Pattern ===

impl Pattern<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix { text, .. } | Self::Regex { text, .. } => text,
        }
    }
}
