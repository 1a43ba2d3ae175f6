use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}
fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

/// Every line of both registries: first and last address of the network, and its neighbours outside
/// where those are public.
const TABLE: &[(&str, &str, Block)] = &[
    ("0.0.0.0", "0.255.255.255", Block::ThisNetwork),
    ("10.0.0.0", "10.255.255.255", Block::Private),
    ("100.64.0.0", "100.127.255.255", Block::Shared),
    ("127.0.0.0", "127.255.255.255", Block::Loopback),
    ("169.254.0.0", "169.254.255.255", Block::LinkLocal),
    ("172.16.0.0", "172.31.255.255", Block::Private),
    ("192.0.0.0", "192.0.0.255", Block::ProtocolAssignment),
    ("192.0.2.0", "192.0.2.255", Block::Documentation),
    ("192.88.99.0", "192.88.99.255", Block::SixToFour),
    ("192.168.0.0", "192.168.255.255", Block::Private),
    ("198.18.0.0", "198.19.255.255", Block::Benchmarking),
    ("198.51.100.0", "198.51.100.255", Block::Documentation),
    ("203.0.113.0", "203.0.113.255", Block::Documentation),
    ("224.0.0.0", "239.255.255.255", Block::Multicast),
    ("240.0.0.0", "255.255.255.254", Block::Reserved),
    ("255.255.255.255", "255.255.255.255", Block::Broadcast),
    ("100.100.100.200", "100.100.100.200", Block::Metadata),
    ("168.63.129.16", "168.63.129.16", Block::Metadata),
    ("::", "::", Block::ThisNetwork),
    ("::1", "::1", Block::Loopback),
    ("::2", "::ffff:ffff", Block::Embedded4),
    ("::ffff:0.0.0.0", "::ffff:255.255.255.255", Block::Embedded4),
    ("::ffff:0:0:0", "::ffff:0:ffff:ffff", Block::Embedded4),
    ("64:ff9b::", "64:ff9b::ffff:ffff", Block::Nat64),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Block::Nat64),
    ("100::", "100::ffff:ffff:ffff:ffff", Block::NotGlobalUnicast),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", Block::Teredo),
    ("2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Block::ProtocolAssignment),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Block::Documentation),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::SixToFour),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Block::Documentation),
    ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::NotGlobalUnicast),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::NotGlobalUnicast),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::UniqueLocal),
    ("fd00:ec2::254", "fd00:ec2::254", Block::Metadata),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::LinkLocal),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::NotGlobalUnicast),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Block::Multicast),
];

#[test]
fn each_line_of_the_registries_is_classified_from_its_first_to_its_last_address() {
    for (first, last, expected) in TABLE {
        for text in [first, last] {
            assert_eq!(block(ip(text)), Some(*expected), "{text}");
        }
    }
}

#[test]
fn the_neighbours_of_every_special_network_are_public() {
    for public in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "168.63.129.15",
        "168.63.129.17",
        "8.8.8.8",
        "2000::",
        "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:200::",
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db9::",
        "2003::",
        "2606:4700::1111",
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:1000::",
        "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ] {
        assert_eq!(block(ip(public)), None, "{public}");
    }
}

#[test]
fn an_exception_needs_the_entry_and_the_platform() {
    let both = nets(&["127.0.0.0/8", "10.0.0.0/8"]);
    let lists = |allow: &[IpNet]| Addresses { allow: allow.to_vec(), ..Addresses::default() };
    let to = at("10.0.0.5", 443);
    assert!(lists(&both).check(to, &both).is_ok());
    assert!(lists(&[]).check(to, &both).is_err());
    assert!(lists(&both).check(to, &[]).is_err());
    assert!(lists(&both).check(to, &nets(&["10.0.0.6/32"])).is_err());
    assert!(lists(&[]).check(at("8.8.8.8", 443), &[]).is_ok());
}

#[test]
fn what_is_never_exempt_stays_refused_under_lists_that_hold_everything() {
    let all = nets(&["0.0.0.0/0", "::/0"]);
    let platform = Addresses { allow: all.clone(), ..Addresses::default() };
    for never in [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:5",
        "2002:7f00:1::",
        "2001::1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
    ] {
        assert!(platform.check(at(never, 443), &all).is_err(), "{never}");
    }
    for listed in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "100.64.0.1", "::1", "fd12::1"] {
        assert!(platform.check(at(listed, 443), &all).is_ok(), "{listed}");
    }
}

#[test]
fn our_own_sockets_are_refused_at_their_port_only() {
    let all = nets(&["0.0.0.0/0", "::/0"]);
    let platform = Addresses {
        allow: all.clone(),
        own: vec![at("127.0.0.1", 7700), at("8.8.4.4", 5432), at("0.0.0.0", 9000)],
        ..Addresses::default()
    };
    let own = |a, p| platform.check(at(a, p), &all).is_err_and(|e| e.block == Block::Own);
    assert!(own("127.0.0.1", 7700) && own("8.8.4.4", 5432));
    assert!(own("127.0.0.1", 9000) && own("10.0.0.1", 9000) && own("::1", 9000));
    for (a, p) in [("127.0.0.1", 7701), ("8.8.4.4", 443), ("8.8.8.8", 9000)] {
        assert!(platform.check(at(a, p), &all).is_ok(), "{a} {p}");
    }
}

/// O-SSRF-15
#[test]
fn a_deny_wins_over_an_allow_whatever_the_order() {
    let allow = nets(&["192.0.2.0/24"]);
    let platform =
        Addresses { allow: allow.clone(), deny: nets(&["192.0.2.5/32", "8.8.8.0/24"]), own: vec![] };
    let denied = |a| platform.check(at(a, 443), &allow).is_err_and(|e| e.block == Block::Denied);
    assert!(denied("192.0.2.5") && denied("8.8.8.8"));
    assert!(platform.check(at("192.0.2.6", 443), &allow).is_ok());
}

proptest! {
    #[test]
    fn ipv6_outside_global_unicast_is_always_refused_without_lists(bits: u128) {
        let a = Ipv6Addr::from(bits);
        if bits >> 125 != 1 {
            prop_assert!(Addresses::default().check(SocketAddr::new(a.into(), 443), &[]).is_err());
        }
    }

    #[test]
    fn an_ipv4_address_never_passes_in_ipv6_clothes(bits: u32) {
        let all = nets(&["::/0", "0.0.0.0/0"]);
        let platform = Addresses { allow: all.clone(), ..Addresses::default() };
        let low = u128::from(bits);
        for wrapped in [
            low,
            0xffff_0000_0000 | low,
            (0x0064_ff9b_u128 << 96) | low,
            (0x0064_ff9b_0001_u128 << 80) | low,
            (0x2002_u128 << 112) | (low << 80),
            (0x2001_0000_u128 << 96) | !low,
        ] {
            let a = IpAddr::V6(Ipv6Addr::from(wrapped));
            prop_assert!(a == ip("::1") || platform.check(SocketAddr::new(a, 443), &all).is_err(), "{}", a);
        }
    }

    #[test]
    fn std_and_the_table_agree_on_what_std_knows(bits: u32) {
        let a = Ipv4Addr::from(bits);
        if a.is_private() || a.is_loopback() || a.is_link_local() || a.is_multicast() || a.is_broadcast()
            || a.is_documentation() || a.is_unspecified()
        {
            prop_assert!(block(a.into()).is_some());
        }
    }

    #[test]
    fn lists_of_one_side_lift_nothing(bits: u32) {
        let to = SocketAddr::new(Ipv4Addr::from(bits).into(), 443);
        let all = nets(&["0.0.0.0/0"]);
        let bare = Addresses::default().check(to, &[]);
        prop_assert_eq!(Addresses::default().check(to, &all), bare);
        prop_assert_eq!(Addresses { allow: all, ..Addresses::default() }.check(to, &[]), bare);
    }
}
