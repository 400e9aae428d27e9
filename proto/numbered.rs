// SPDX-License-Identifier: GPL-2.0

//! Enums that are kept or sent as numbers.

/// Declares an enum whose variants have numbers, and perhaps names.
///
/// The enum gets `ALL` and `TryFrom` of its number, whose error is the number that no variant has;
/// with names also `as_str()`.
macro_rules! numbered {
    ($(#[$doc:meta])* pub enum $type:ident: $repr:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($repr)]
        pub enum $type {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $type {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The number.
            #[inline]
            pub const fn to_u32(self) -> u32 {
                self as u32
            }
        }

        impl TryFrom<$repr> for $type {
            type Error = $repr;

            #[inline]
            fn try_from(number: $repr) -> Result<Self, $repr> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(number),
                }
            }
        }
    };
    ($(#[$doc:meta])* pub enum $type:ident: $repr:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $name:literal;)*
    }) => {
        $crate::numbered::numbered! {
            $(#[$doc])* pub enum $type: $repr {
                $($(#[$variant_doc])* $variant = $number,)*
            }
        }

        impl $type {
            /// The name, for users and log lines.
            #[inline]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}
pub(crate) use numbered;
