//! Instants of RFC 3339 with their offset, as milliseconds since the epoch. Only what the progress convention needs.

use holdpoint_state::clock::UnixMillis;

const DAY_MS: i64 = 86_400_000;

/// Reads `2026-01-02T03:04:05.678+01:00` (RFC 3339, section 5.6). A second of 60 is the first of the next minute; digits of a fraction
/// after the third are cut.
pub(super) fn parse(text: &str) -> Option<UnixMillis> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (year, date) = (digits(date.get(..4)?)?, date.get(4..)?.strip_prefix('-')?);
    let (month, day) = (
        digits(date.get(..2)?)?,
        digits(date.get(2..)?.strip_prefix('-')?)?,
    );
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let (time, rest) = rest.split_at_checked(8)?;
    let time_ms = clock(time.get(..5)?, 23)?.checked_add(
        Some(digits(time.get(5..)?.strip_prefix(':')?)?)
            .filter(|second| *second <= 60)?
            .checked_mul(1_000)?,
    )?;
    let (fraction_ms, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let (fraction, offset) = rest.split_at(end);
            let three: String = fraction.chars().chain("00".chars()).take(3).collect();
            (
                Some(fraction)
                    .filter(|f| !f.is_empty())
                    .and(digits(&three))?,
                offset,
            )
        }
    };
    let offset_ms = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        ("+", ahead) => clock(ahead, 23)?,
        ("-", behind) => -clock(behind, 23)?,
        _ => return None,
    };
    Some(UnixMillis(
        days_from_civil(year, month, day) * DAY_MS + time_ms + fraction_ms - offset_ms,
    ))
}

/// `HH:MM` in milliseconds.
fn clock(text: &str, most_hours: i64) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let both_have_two = hours.len() == 2 && minutes.len() == 2;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (both_have_two && hours <= most_hours && minutes <= 59)
        .then_some((hours * 60 + minutes) * 60_000)
}

fn digits(text: &str) -> Option<i64> {
    let only_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| text.parse().ok()).flatten()
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since the epoch of a date of the Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00.5+01:00", 500),
            ("1969-12-31T22:59:59.9999-01:00", -1),
            ("2000-02-29T00:00:00z", 951_782_400_000),
            ("2026-11-30 17:30:00.123456+00:00", 1_796_059_800_123),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000),
        ] {
            assert_eq!(parse(text), Some(UnixMillis(millis)), "{text}");
        }
        for bad in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01T00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "1970-01-32T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00Zx",
            "19700101T000000Z",
            "1970-01-01T00:00:00+0100",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00ä",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
