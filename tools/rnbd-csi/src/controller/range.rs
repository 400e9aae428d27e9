// SPDX-License-Identifier: GPL-2.0

//! How large a volume shall be.

use std::fmt;

use crate::capability::Wanted;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::CapacityRange;
use crate::messages::ControllerExpandVolumeRequest;
use crate::messages::CreateVolumeRequest;
use crate::store::name;

/// A size in bytes, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// At least; 0 if nothing was asked for.
    pub(crate) required: u64,
    limit: Option<u64>,
}

/// The range of a request; any size if there is none.
pub(crate) fn parse(range: Option<&CapacityRange>) -> Result<Range> {
    let Some(range) = range else {
        return Ok(Range {
            required: 0,
            limit: None,
        });
    };
    let number = |name: &str, value: i64| {
        u64::try_from(value).map_err(|_| Status::invalid(format!("{name} is negative: {value}")))
    };
    let required = number("required_bytes", range.required_bytes)?;
    let limit = number("limit_bytes", range.limit_bytes)?;
    let limit = Some(limit).filter(|limit| *limit != 0);
    if limit.is_some_and(|limit| limit < required) {
        let why = format!("limit_bytes is less than required_bytes, {required}");
        return Err(Status::invalid(why));
    }
    Ok(Range { required, limit })
}

/// The range of a volume that is to be made, of a request that makes sense as far as can be seen
/// without its parameters.
pub(super) fn of_new(request: &CreateVolumeRequest) -> Result<Range> {
    name::check(&request.name)?;
    if request.volume_capabilities.is_empty() {
        return Err(Status::invalid("volume_capabilities are missing"));
    }
    Wanted::check_all(&request.volume_capabilities).map_err(Status::invalid)?;
    if request.volume_content_source.is_some() {
        return Err(Status::invalid("volumes cannot be made as copies"));
    }
    if let Some(key) = request
        .mutable_parameters
        .keys()
        .find(|key| !key.contains('/'))
    {
        let why = format!("mutable parameter {key} is unknown: there are none");
        return Err(Status::invalid(why));
    }
    parse(request.capacity_range.as_ref())
}

/// The range of a volume that is to grow. `INVALID_ARGUMENT` if the request has none.
pub(super) fn of_growth(request: &ControllerExpandVolumeRequest) -> Result<Range> {
    match &request.capacity_range {
        None => Err(Status::invalid("capacity_range is missing")),
        range => parse(range.as_ref()),
    }
}

/// In words, for errors: `at least 5 and at most 7 bytes`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.required, self.limit) {
            (0, None) => write!(f, "any number of bytes"),
            (0, Some(limit)) => write!(f, "at most {limit} bytes"),
            (required, None) => write!(f, "at least {required} bytes"),
            (required, Some(limit)) => write!(f, "at least {required} and at most {limit} bytes"),
        }
    }
}

impl Range {
    /// `OUT_OF_RANGE` unless a volume may have the size that it has: it does not shrink.
    pub(crate) fn need(&self, bytes: u64) -> Result {
        match self.allows(bytes) {
            true => Ok(()),
            false => Err(Status::new(
                Code::OutOfRange,
                format!(
                    "{self} are asked for, and the volume has {bytes} bytes; volumes do not shrink"
                ),
            )),
        }
    }

    /// Whether so many bytes are not above the limit.
    pub(super) fn is_below(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| bytes <= limit)
    }

    /// The limit as a message has it: 0 if there is none.
    pub(super) fn limit_or_none(&self) -> i64 {
        self.limit.map_or(0, super::signed)
    }

    /// Whether a volume may have that size.
    pub(crate) fn allows(&self, bytes: u64) -> bool {
        bytes >= self.required && self.limit.is_none_or(|limit| bytes <= limit)
    }

    /// The size to make: what is required, or else `default`, in whole `units`.
    ///
    /// `OUT_OF_RANGE` if no multiple of the unit is in the range.
    pub(crate) fn choose(&self, default: u64, unit: u64) -> Result<u64> {
        let wanted = match (self.required, self.limit) {
            (0, Some(limit)) => default.min(limit),
            (0, None) => default,
            (required, _) => required,
        };
        let up = wanted.max(1).checked_next_multiple_of(unit);
        // With a limit alone less than the default will do.
        let down = self.limit.filter(|_| self.required == 0);
        let down = down.and_then(|limit| limit.checked_div(unit)?.checked_mul(unit));
        let fits = |bytes: &u64| *bytes != 0 && self.allows(*bytes);
        up.filter(fits).or(down.filter(fits)).ok_or_else(|| {
            let why = format!(
                "{self} are asked for, and no multiple of {unit} bytes is such a size; sizes are \
                 multiples of {unit} bytes"
            );
            Status::new(Code::OutOfRange, why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<Range> {
        parse(Some(&CapacityRange {
            required_bytes,
            limit_bytes,
        }))
    }

    #[test]
    fn sizes_are_whole_units_in_the_range() {
        let choose = |required, limit| range(required, limit).unwrap().choose(1000, 10);
        assert_eq!(parse(None).unwrap().choose(1000, 10), Ok(1000));
        assert_eq!(choose(0, 0), Ok(1000));
        assert_eq!(choose(1, 0), Ok(10));
        assert_eq!(choose(25, 0), Ok(30));
        assert_eq!(choose(25, 30), Ok(30));
        assert_eq!(choose(0, 99), Ok(90));
        assert_eq!(choose(0, 5000), Ok(1000));
        for (required, limit) in [(25, 29), (0, 9), (i64::MAX, i64::MAX)] {
            let error = choose(required, limit).unwrap_err();
            assert_eq!(error.code, Code::OutOfRange, "{required} {limit}");
        }
        let error = choose(25, 29).unwrap_err();
        let said = "at least 25 and at most 29 bytes are asked for";
        assert!(error.message.starts_with(said), "{error:?}");
    }

    #[test]
    fn a_size_above_the_limit_is_told_with_all_numbers() {
        assert_eq!(range(5, 6).unwrap().need(6), Ok(()));
        for (required, limit, asked) in [
            (5, 6, "at least 5 and at most 6 bytes"),
            (0, 6, "at most 6 bytes"),
        ] {
            let error = range(required, limit).unwrap().need(7).unwrap_err();
            assert_eq!(error.code, Code::OutOfRange);
            let said =
                format!("{asked} are asked for, and the volume has 7 bytes; volumes do not shrink");
            assert_eq!(error.message, said);
        }
        assert_eq!(range(5, 0).unwrap().to_string(), "at least 5 bytes");
        assert_eq!(range(0, 0).unwrap().to_string(), "any number of bytes");
    }

    #[test]
    fn nonsense_is_refused() {
        for (required, limit) in [(-1, 0), (0, -1), (5, 4)] {
            let error = range(required, limit).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
        }
        assert!(range(5, 5).unwrap().allows(5));
        assert!(!range(5, 6).unwrap().allows(7));
        assert!(!range(5, 0).unwrap().allows(4));
    }
}
