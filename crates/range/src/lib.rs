//! Rules for the address ranges of a program: what a range's next faults should map, what to populate ahead of the
//! program, what to collapse afterwards, what to give back.
//!
//! The agent inside a program decides with these rules, and the manager and the simulator may. So there is nothing here
//! but decisions: no I/O, no clock, no allocation and no `std`; tables are of a fixed size. What is to be known about
//! memory is asked of a [`Memory`](world::Memory); what is to be done comes back as [`Order`](orders::Order)s, and the
//! caller reports each one's [`Outcome`](orders::Outcome).
//!
//! | module | subject |
//! | --- | --- |
//! | [`span`] | addresses, regions and spans of addresses |
//! | [`intent`] | what matters for this program |
//! | [`density`] | how densely a range is filled |
//! | [`filled`] | whether the program fills what is mapped huge |
//! | [`waste`] | how much memory may be spent on huge pages that the program does not use |
//! | [`credit`] | how long a program may be stalled |
//! | [`birth`] | advice for a mapping before its first touch |
//! | [`children`] | which forked children get a helper at once |
//! | [`warm`] | whether the machine's free blocks are backed |
//! | [`profile`] | what was learned of a program in earlier runs |
//! | [`ahead`] | populating ahead of the program, group by group |
//! | [`rate`] | how fast the program fills memory |
//! | [`mappings`] | which of a program's mappings are followed |
//! | [`table`] | ranges followed by address, whatever the mappings do |
//! | [`world`] | what is known when it is decided |
//! | [`orders`] | what is to be done, and what came of it |
//! | [`auto`] | the rules together |
//! | [`page`] | the page of memory in which an agent says what it did |

#![no_std]
#![forbid(unsafe_code)]

pub mod ahead;
pub mod auto;
pub mod birth;
pub mod children;
pub mod credit;
pub mod density;
pub mod filled;
pub mod intent;
pub mod mappings;
pub mod orders;
pub mod page;
pub mod profile;
pub mod rate;
pub mod span;
pub mod sparse;
pub mod table;
pub mod warm;
pub mod waste;
pub mod world;
