// SPDX-License-Identifier: GPL-2.0

//! The Prometheus text format, version 0.0.4, which files for the node exporter have. It is made
//! from OpenMetrics, which the library writes.
//!
//! Two things differ from OpenMetrics: a counter's name has its `_total` in HELP and TYPE, too, and
//! there are neither units nor a line that marks the end.

/// The content type of the older format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content type of OpenMetrics.
pub const OPENMETRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// OpenMetrics text as the older format.
pub fn from_openmetrics(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        match comment(line) {
            Some((keyword, name, rest)) if counters.contains(&name) => {
                out.push_str(&format!("# {keyword} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Keyword, name and the rest of a HELP or TYPE line.
fn comment(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    matches!(keyword, "HELP" | "TYPE").then_some((keyword, name, rest))
}
