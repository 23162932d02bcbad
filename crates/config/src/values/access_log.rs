//! Settings of the access log.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use tidegate_limit::text::words::words;

/// The access log, which has one line for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccessLog {
    /// The destination.
    #[serde(rename = "path")]
    pub destination: AccessLogDestination,
    /// The format; `None` for the format of the process log.
    pub format: Option<AccessLogFormat>,
    /// The share of the lines that are written.
    pub sample: Sample,
}

/// The destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLogDestination {
    /// No access log.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

words! {
    /// The format of the lines.
    pub enum AccessLogFormat {
        /// Readable text with `field=value`.
        Text = "text",
        /// A JSON object.
        Json = "json",
        /// The combined format of nginx and Apache.
        Combined = "combined",
    }
}

/// A share from 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u32);

// === impl AccessLog ===

impl AccessLog {
    /// Returns `true` if there is no access log.
    pub fn is_off(&self) -> bool {
        self.destination == AccessLogDestination::Off
    }
}

// === impl Sample ===

impl Sample {
    /// One whole.
    const MILLION: u32 = 1_000_000;

    /// Creates a share. Numbers out of range become 0 or 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is clamped")]
    pub fn from_share(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * f64::from(Self::MILLION)).round() as u32)
    }

    /// Returns the share of 2^64; [`u64::MAX`] for the whole.
    pub fn threshold(self) -> u64 {
        match self.0 {
            Self::MILLION => u64::MAX,
            millionths => u64::MAX / u64::from(Self::MILLION) * u64::from(millionths),
        }
    }
}

/// The whole.
impl Default for Sample {
    fn default() -> Self {
        Self(Self::MILLION)
    }
}

impl Serialize for AccessLogDestination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Stdout => serializer.serialize_str("stdout"),
            Self::File(path) => serializer.collect_str(&path.display()),
        }
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / f64::from(Self::MILLION))
    }
}
