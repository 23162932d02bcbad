//! The findings about directives: one for each directive.

use super::settings::{self, Kind, is_authentication};
use super::syntax::Directive;
use crate::report::{self, Report, Verdict};

/// The findings so far. A directive that several blocks inherit has the finding with the worst verdict.
#[derive(Debug, Default)]
pub(super) struct Notes {
    found: report::Notes,
}

// === impl Notes ===

impl Notes {
    pub(super) fn same(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, Verdict::Same, reason);
    }

    pub(super) fn stricter(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, Verdict::Stricter, reason);
    }

    pub(super) fn looser(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, Verdict::Looser, reason);
    }

    pub(super) fn lost(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, Verdict::Lost, reason);
    }

    pub(super) fn add(&mut self, directive: &Directive, verdict: Verdict, reason: impl Into<String>) {
        self.found.add(&directive.place, setting(directive), verdict, reason);
    }

    /// Returns `true` if the directive has a finding.
    pub(super) fn has(&self, directive: &Directive) -> bool {
        self.found.has(&directive.place, setting(directive))
    }

    /// Returns `true` if the directive is lost so far.
    pub(super) fn is_lost(&self, directive: &Directive) -> bool {
        self.found.verdict(&directive.place, setting(directive)) == Some(Verdict::Lost)
    }

    /// Adds the directives without a finding. `context` is the block that contains them.
    pub(super) fn add_others(&mut self, directives: &[Directive], context: &str) {
        for directive in directives {
            let kind = settings::kind(directive.name(), context);
            if !self.has(directive) {
                match kind {
                    Kind::Other => {}
                    _ if context == "if" => self.lost(directive, "settings within `if` are not supported"),
                    Kind::Unsupported if is_authentication(directive) => {
                        self.lost(directive, "its routes respond with 403, until you write `require`");
                    }
                    Kind::Unsupported => self.lost(directive, "not supported"),
                    Kind::Neutral => self.same(directive, "the gateway needs no such setting"),
                    Kind::Supported if directive.name() == "proxy_redirect" => self.redirect(directive),
                    Kind::Supported if directive.name() == "rewrite" => {
                        self.lost(
                            directive,
                            "only redirects, and changes of a prefix next to `proxy_pass`, are supported",
                        );
                    }
                    Kind::Supported if directive.name() == "set" => {
                        self.same(directive, "the value, wherever a supported setting uses the variable");
                    }
                    Kind::Supported => self.same(directive, "without effect here: no request uses it"),
                }
            }
            if settings::has_settings(directive.name()) {
                self.add_others(directive.inner(), directive.name());
            }
        }
    }

    fn redirect(&mut self, directive: &Directive) {
        match directive.arg(0) {
            Some("off" | "default") => self.same(directive, "a `Location` that names a target is changed"),
            _ => self.lost(directive, "only a `Location` that names a target is changed"),
        }
    }

    /// Moves the findings to the report.
    pub(super) fn finish(self, report: &mut Report) {
        self.found.finish(report);
    }
}

/// The longest setting of a finding, in bytes. Longer ones are cut at a word.
const MAX_SETTING: usize = 300;

/// Returns a directive as in the file, without its block.
fn setting(directive: &Directive) -> String {
    let mut setting = String::new();
    for word in [&directive.name].into_iter().chain(&directive.args) {
        if setting.len() > MAX_SETTING {
            break;
        }
        if !setting.is_empty() {
            setting.push(' ');
        }
        match word.text.as_str() {
            "" => setting.push_str("\"\""),
            text => setting.extend(text.chars().take(MAX_SETTING)),
        }
    }
    setting
}
