//! Parses and formats durations.

use std::time::Duration;

/// A shorter lease expires before a busy machine can renew it.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// `1.5h`, `30s`, `500ms`; a number without a unit is in seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_ms = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return Err(format!("unknown unit {unit:?}: use ms, s, m, h or d")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number and a unit, such as 30s, 1.5h or 500ms".to_owned())?;
    let seconds = number * unit_ms / 1_000.0;
    Duration::try_from_secs_f64(seconds).map_err(|_| "duration is too long".to_owned())
}

/// A time to wait, in which a server can be reached.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("use --try, which does not wait".to_owned()),
        wait => Ok(wait),
    }
}

/// A duration that is long enough for a lease.
pub fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse(text)?;
    if lease < MIN_LEASE {
        return Err("a lease must be at least 100ms, so that it can be renewed in time".to_owned());
    }
    Ok(lease)
}

/// At most two units: `250ms`, `4.2s`, `3m05s`, `2h10m`, `3d04h`.
pub fn format(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{seconds}.{}s", ms / 100 % 10),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

pub fn format_ms(ms: u64) -> String {
    format(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_parsed_with_and_without_unit() {
        let cases = [
            ("500ms", 500),
            ("30", 30_000),
            ("30s", 30_000),
            ("0.5", 500),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0", 0),
        ];
        for (text, ms) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn malformed_duration_is_rejected() {
        for text in "|s|-1|1w|1.2.3|1 s|inf|nan|99999999999999999999999d".split('|') {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_lease("99ms").is_err());
        assert!(parse_lease("100ms").is_ok());
    }

    #[test]
    fn duration_is_formatted_with_at_most_two_units() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (4_299, "4.2s"),
            (59_999, "59s"),
            (185_000, "3m05s"),
            (7_800_000, "2h10m"),
            (273_600_000, "3d04h"),
        ];
        for (ms, text) in cases {
            assert_eq!(format(Duration::from_millis(ms)), text);
        }
    }
}
