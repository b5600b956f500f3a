//! Numbers as ECMAScript prints them, and the rule about which ones survive that (see the module above).

use super::JsonError;

/// Every integer up to here is a double of its own, and prints as itself.
const SAFE_INTEGER_MAX: u64 = 1 << 53;

/// Integer literals of so many digits are below [`SAFE_INTEGER_MAX`], whatever the digits.
const SAFE_DIGITS: usize = 15;

/// Appends a double. `-0` becomes `0`.
pub(super) fn write_double(out: &mut Vec<u8>, number: f64) -> Result<(), JsonError> {
    if !number.is_finite() {
        return Err(JsonError::NumberNotFinite {
            pointer: String::new(),
        });
    }
    out.extend_from_slice(ryu_js::Buffer::new().format_finite(number).as_bytes());
    Ok(())
}

/// Appends an integer, if its canonical form denotes it.
pub(super) fn write_integer<N>(out: &mut Vec<u8>, number: N) -> Result<(), JsonError>
where
    N: Copy + std::fmt::Display + TryInto<i64>,
{
    use std::io::Write as _;
    if let Ok(small) = number.try_into()
        && small.unsigned_abs() <= SAFE_INTEGER_MAX
    {
        // Writing to a Vec does not fail.
        drop(write!(out, "{small}"));
        return Ok(());
    }
    write_integer_literal(out, &number.to_string())
}

/// Appends an integer given as a literal of the JSON grammar, if its canonical form denotes it.
pub(super) fn write_integer_literal(out: &mut Vec<u8>, literal: &str) -> Result<(), JsonError> {
    if literal == "-0" {
        out.push(b'0');
        return Ok(());
    }
    // The grammar has no leading zeros and no plus sign, so a short integer is canonical already.
    if literal.len() <= SAFE_DIGITS {
        out.extend_from_slice(literal.as_bytes());
        return Ok(());
    }
    let number = nearest_double(literal)?;
    let mut buffer = ryu_js::Buffer::new();
    let printed = buffer.format_finite(number);
    if printed != literal && !is_same_integer(literal, printed) {
        return Err(not_exact(literal));
    }
    out.extend_from_slice(printed.as_bytes());
    Ok(())
}

/// Appends a number given as a literal with a fraction or an exponent, as the nearest double.
pub(super) fn write_decimal_literal(out: &mut Vec<u8>, literal: &str) -> Result<(), JsonError> {
    let number = nearest_double(literal)?;
    let is_written_zero = literal
        .bytes()
        .take_while(|byte| !matches!(byte, b'e' | b'E'))
        .all(|byte| matches!(byte, b'-' | b'.' | b'0'));
    if number == 0.0 && !is_written_zero {
        return Err(not_exact(literal));
    }
    write_double(out, number)
}

fn nearest_double(literal: &str) -> Result<f64, JsonError> {
    match literal.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) | Err(_) => Err(not_exact(literal)),
    }
}

/// Whether `printed`, in the exponent form that starts at 1e21, is the integer `literal`.
fn is_same_integer(literal: &str, printed: &str) -> bool {
    let Some((mantissa, exponent)) = printed.split_once("e+") else {
        return false;
    };
    let Ok(exponent) = exponent.parse::<usize>() else {
        return false;
    };
    let magnitude = literal.trim_start_matches('-');
    let has_same_sign = literal.starts_with('-') == printed.starts_with('-');
    let printed_digits = mantissa.bytes().filter(u8::is_ascii_digit);
    has_same_sign
        && magnitude.len() == exponent + 1
        && magnitude.trim_end_matches('0').bytes().eq(printed_digits)
}

fn not_exact(literal: &str) -> JsonError {
    JsonError::NumberNotExact {
        pointer: String::new(),
        literal: literal.chars().take(40).collect(),
    }
}
