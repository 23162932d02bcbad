//! The settings of the dashboard.

use tidegate_limit::text::words::words;

words! {
    /// Whether the admin listener serves the dashboard.
    pub enum DashboardMode, default On {
        /// The page shows the gateway, and operators can make changes with their tokens.
        On = "on",
        /// The page shows the gateway, and has no forms for changes.
        ReadOnly = "read_only",
        /// There is no page.
        Off = "off",
    }
}
