//! Instants as the documents of decisions write them: UTC with milliseconds, `2026-09-01T00:10:00.000Z`.

use holdpoint_state::clock::UnixMillis;

const DAY_MS: i64 = 86_400_000;

/// The text of an instant.
pub fn to_iso(at: UnixMillis) -> String {
    let (days, of_day) = (at.0.div_euclid(DAY_MS), at.0.rem_euclid(DAY_MS));
    // The date of a day number of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, milli) = (
        of_day / 3_600_000,
        of_day / 60_000 % 60,
        of_day / 1_000 % 60,
        of_day % 1_000,
    );
    // ECMAScript writes years outside of four digits with a sign and six.
    let year = match year {
        0..=9_999 => format!("{year:04}"),
        _ => format!("{year:+07}"),
    };
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The instant of a text, if it is written exactly as [`to_iso`] writes it.
pub fn from_iso(text: &str) -> Option<UnixMillis> {
    let end = text.len().checked_sub("-01-01T00:00:00.000Z".len())?;
    let (year, rest) = text.split_at_checked(end)?;
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = rest.get(from..to)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten()
    };
    let year: i64 = year
        .parse()
        .ok()
        .filter(|year: &i64| year.abs() <= 275_760)?;
    let (month, day) = (number(1, 3)?, number(4, 6)?);
    let of_day = number(7, 9)? * 3_600_000
        + number(10, 12)? * 60_000
        + number(13, 15)? * 1_000
        + number(16, 19)?;
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    // Written again, so that whatever was no date, or is written otherwise, is none.
    let at = UnixMillis(days * DAY_MS + of_day);
    (to_iso(at) == text).then_some(at)
}

/// The instant of a text as people and programs write it (RFC 3339, section 5.6): with or without a fraction of a second, in UTC or with an
/// offset. What is below a millisecond is dropped. Documents have one form of each instant, that of [`to_iso`].
///
/// A leap second, a space in place of the `T` and the unknown offset `-00:00` are no instants here.
pub fn from_rfc3339(text: &str) -> Option<UnixMillis> {
    if let Some(at) = from_iso(text) {
        return Some(at);
    }
    let (whole, rest) = text.split_at_checked("2026-01-01T00:00:00".len())?;
    let (day, time) = whole.split_once(['T', 't'])?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            if end == 0 {
                return None;
            }
            rest.split_at_checked(end)?
        }
    };
    let millis: String = fraction.chars().chain("000".chars()).take(3).collect();
    let local = from_iso(&format!("{day}T{time}.{millis}Z"))?;
    let offset_minutes = match zone {
        "Z" | "z" => 0,
        _ => {
            let east = match zone.get(..1)? {
                "+" => 1,
                "-" if zone != "-00:00" => -1,
                _ => return None,
            };
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            east * (two_digits(hours, 23)? * 60 + two_digits(minutes, 59)?)
        }
    };
    Some(local.plus(-offset_minutes * 60_000))
}

fn two_digits(text: &str, most: i64) -> Option<i64> {
    let is_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_two && *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_people_write_it() {
        let at = UnixMillis(1_788_221_400_000);
        for text in [
            "2026-09-01T00:10:00.000Z",
            "2026-09-01T00:10:00Z",
            "2026-09-01t00:10:00z",
            "2026-09-01T00:10:00.0Z",
            "2026-09-01T00:10:00.000999999Z",
            "2026-09-01T02:10:00+02:00",
            "2026-08-31T18:40:00.000-05:30",
            "2026-09-01T00:10:00+00:00",
        ] {
            assert_eq!(from_rfc3339(text), Some(at), "{text}");
        }
        assert_eq!(from_rfc3339("2026-09-01T00:10:00.25Z"), Some(at.plus(250)));
        for wrong in [
            "",
            "2026-09-01",
            "2026-09-01T00:10Z",
            "2026-09-01T00:10:00",
            "2026-09-01 00:10:00Z",
            "2026-09-01T00:10:00.Z",
            "2026-09-01T00:10:00.000",
            "2026-09-01T00:10:60Z",
            "2026-02-29T00:00:00Z",
            "2026-09-01T00:10:00-00:00",
            "2026-09-01T00:10:00+2:00",
            "2026-09-01T00:10:00+0200",
            "2026-09-01T00:10:00+24:00",
            "2026-09-01T00:10:00+02:60",
            "2026-09-01T00:10:00+02:00Z",
            "2026-09-01T00:10:00ä",
        ] {
            assert_eq!(from_rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn instants() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_788_221_400_000, "2026-09-01T00:10:00.000Z"),
            (253_402_300_800_000, "+010000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(to_iso(UnixMillis(millis)), text);
            assert_eq!(from_iso(text), Some(UnixMillis(millis)), "{text}");
        }
        for wrong in [
            "",
            "Z",
            "2026-09-01",
            "2026-09-01T00:10:00Z",
            "2026-09-01T00:10:00.000+00:00",
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01 00:00:00.000Z",
            "+2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:60.000Z",
            "ä026-01-01T00:00:00.000Z",
            "99999999999999999999-01-01T00:00:00.000Z",
        ] {
            assert_eq!(from_iso(wrong), None, "{wrong}");
        }
    }
}
