//! The result of a replay as an HTML page, which loads nothing.

mod chart;
mod over_time;
mod rates;
mod section;
mod sorted;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::{SHA256, digest};

use self::section::{limits, list, section, table};
use self::text::{Escaped, grouped, percent, script_json};
use super::report::{Difference, Report};

const STYLE: &str = concat!(include_str!("../../dashboard/colors.css"), include_str!("page.css"));
const SCRIPT: &str = include_str!("page.js");

/// Returns the page. Its size depends on the number of limits, not on the number of requests and clients.
pub fn page(report: &Report) -> String {
    let (mut sections, mut data) = (String::new(), BTreeMap::new());
    for (number, (name, limit)) in report.limits.iter().enumerate() {
        let (html, rates) = section(number, name, limit);
        sections += &html;
        data.extend(rates.map(|rates| (format!("limit-{number}"), rates)));
    }
    let against = report.against.as_ref().map(|difference| against(difference)).unwrap_or_default();
    format!(
        include_str!("page.html"),
        style_hash = hash(STYLE),
        script_hash = hash(SCRIPT),
        requests = grouped(report.requests),
        style = STYLE,
        content = totals(report) + &against + &sections,
        data = script_json(&data),
        script = SCRIPT,
    )
}

/// Returns the totals, the notes and the table of the limits.
fn totals(report: &Report) -> String {
    let mut html = String::new();
    if let (Some(first), Some(last)) = (&report.first, &report.last) {
        let span = format!("{first} to {last}");
        let parts: Vec<_> = [&span].into_iter().chain(&report.formats).map(String::as_str).collect();
        _ = writeln!(html, "<p class=\"detail\">{}</p>", Escaped(&parts.join(", ")));
    }
    let share = |name, count, detail: &str| {
        (name, format!("<span class=\"big\">{}</span> <span class=\"detail\">{detail}</span>", grouped(count)))
    };
    let of_all = |count| percent(count, report.requests);
    let mut tiles = vec![
        share("Requests", report.requests, "read from the log"),
        share("Allowed", report.allowed, &of_all(report.allowed)),
        share("Rejected", report.rejected, &of_all(report.rejected)),
    ];
    let rest = [
        ("Waited", report.waited, "allowed after max_wait"),
        ("Without route", report.unmatched, "not forwarded"),
        ("Invalid", report.invalid, "answered with 400"),
        ("Lines not parsed", report.unparsed, "not replayed"),
    ];
    tiles.extend(
        rest.into_iter().filter(|(_, count, _)| *count > 0).map(|(name, count, detail)| share(name, count, detail)),
    );
    html += &list("tiles", tiles);

    let mut notes: Vec<_> = report.all_notes().map(|note| with_code(&note)).collect();
    if let Some(first) = &report.first_unparsed {
        let (count, place) = (grouped(report.unparsed), Escaped(&first.file));
        let (line, text) = (first.line, Escaped(&first.text));
        let lines = if report.unparsed == 1 { "line" } else { "lines" };
        notes.push(format!("{count} {lines} not parsed. The first is {place}:{line}: <code>{text}</code>"));
    }
    if report.late > 0 {
        notes.push(format!("{} lines are far behind earlier lines, and count at a later time", grouped(report.late)));
    }
    if !notes.is_empty() {
        html +=
            "<section aria-labelledby=\"notes\">\n<h2 id=\"notes\">Not taken into account</h2>\n<ul class=\"notes\">\n";
        notes.iter().for_each(|note| _ = writeln!(html, "<li>{note}</li>"));
        html += "</ul>\n</section>\n";
    }
    html += "<section aria-labelledby=\"limits\">\n<h2 id=\"limits\">Limits</h2>\n";
    html += &limits("Limits", report, true);
    html + "<p class=\"help\">Each limit counts its own decisions, also about requests that another limit rejects. Peak use is the \
            largest share of the permits in use. Clients of an OVERALL limit are addresses.</p>\n</section>\n"
}

/// Returns a note, with the parts between backticks as code.
fn with_code(note: &str) -> String {
    let parts: Vec<_> = note.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return Escaped(note).to_string();
    }
    let shown = |(position, part): (usize, &&str)| match position % 2 {
        0 => Escaped(part).to_string(),
        _ => format!("<code>{}</code>", Escaped(part)),
    };
    parts.iter().enumerate().map(shown).collect()
}

/// Returns what another rule file changes.
fn against(difference: &Difference) -> String {
    let heads = [("Route", ""), ("Requests", "number"), ("Newly rejected", "number"), ("Newly allowed", "number")];
    let rows = difference.routes.iter().map(|(name, route)| {
        let [requests, rejected, allowed] = [route.requests, route.newly_rejected, route.newly_allowed].map(grouped);
        [Escaped(name).to_string(), requests, rejected, allowed]
    });
    format!(
        "<section aria-labelledby=\"against\">\n<h2 id=\"against\">With {}</h2>\n{}{}<h3>Limits of the other file</h3>\n{}</section>\n",
        Escaped(&difference.file),
        list(
            "facts",
            [
                ("Newly rejected", grouped(difference.newly_rejected)),
                ("Newly allowed", grouped(difference.newly_allowed)),
            ]
        ),
        table("Changes by route", heads, rows),
        limits("Limits of the other file", &difference.report, false),
    )
}

/// Returns the hash of an inline script or style, for the `Content-Security-Policy` of the page.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests;
