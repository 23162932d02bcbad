//! Tests of the page.

use super::*;
use crate::report::curve::{Histogram, curve};
use crate::report::ranks::ranks;
use crate::report::series::Series;
use crate::report::{LimitReport, RejectedClient, UnparsedLine};

const HOSTILE: &str = "</script><img src=http://e.example/x onerror='a()'>\"&\u{2028}";

/// Returns a limit whose clients, or intervals, need these permits.
pub(super) fn limit(mode: &'static str, rate: u32, demands: &[u32]) -> LimitReport {
    let mut histogram = Histogram::default();
    demands.iter().for_each(|demand| histogram.add(*demand));
    let peaks = if mode == "OVERALL" { Histogram::default() } else { histogram.clone() };
    LimitReport {
        mode,
        rate,
        interval: "1m".to_owned(),
        interval_ms: 60_000,
        algorithm: "sliding_window",
        shadow: false,
        allowed: 10,
        rejected: 2,
        unknown: 0,
        unverified: 0,
        peak: 1.0,
        clients: demands.len(),
        affected: 1,
        top: vec![RejectedClient { client: HOSTILE.to_owned(), count: 2, first: "f".to_owned(), last: "l".to_owned() }],
        series: Series { start: 0, step: 1_000, requests: vec![10, 2], rejected: vec![1, 1], ..Series::default() },
        curve: curve(&peaks, &histogram),
        ranks: ranks(demands.to_vec()),
    }
}

fn hostile() -> Report {
    let unparsed = UnparsedLine { file: HOSTILE.to_owned(), line: 1, text: HOSTILE.to_owned() };
    let limits = ["PER_CLIENT", "OVERALL"].map(|mode| (format!("{mode}{HOSTILE}"), limit(mode, 4, &[1, 9, 100])));
    let report = Report { limits: limits.into(), ..Report::default() };
    Report {
        notes: vec![HOSTILE.to_owned()],
        first_unparsed: Some(unparsed),
        unparsed: 1,
        against: Some(Box::new(Difference {
            file: HOSTILE.to_owned(),
            newly_rejected: 1,
            newly_allowed: 2,
            routes: BTreeMap::from([(HOSTILE.to_owned(), Default::default())]),
            report: Box::new(report.clone()),
        })),
        ..report
    }
}

#[test]
fn text_of_logs_adds_no_elements() {
    let page = page(&hostile());
    assert!(!page.contains("<img") && !page.contains("onerror='") && !page.contains('\u{2028}'));
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
}

#[test]
fn page_loads_nothing() {
    let text = page(&hostile()).replace(&Escaped(HOSTILE).to_string(), "");
    for reference in ["http:", "https:", "//e.example", "src=", "@import", "<link", "fetch("] {
        assert!(!text.contains(reference), "{reference}");
    }
    for attribute in text.split("href=\"").skip(1).chain(text.split("url(").skip(1)) {
        assert!(attribute.starts_with('#'), "{attribute:.20}");
    }
    assert!(text.contains("default-src 'none'") && !text.contains("style=\""));
}

#[test]
fn hashes_match_the_inline_texts() {
    assert_eq!(hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    let page = page(&Report::default());
    assert!(page.contains(&format!("<style>{STYLE}</style>")) && page.contains(&format!("<script>{SCRIPT}</script>")));
}

#[test]
fn size_of_the_page_is_bounded() {
    let demands: Vec<u32> = (1..200_000).collect();
    let report = |demands: &[u32]| {
        let limit = limit("PER_CLIENT", 100, demands);
        Report { limits: [("a".to_owned(), limit)].into(), ..Report::default() }
    };
    assert!(page(&report(&demands)).len() < 80_000, "{}", page(&report(&demands)).len());
    assert!(page(&report(&[])).len() < 40_000);
}
