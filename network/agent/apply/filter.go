package apply

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
)

// filter brings our table of nftables of a family in line; nil: there is to be none. If anything but elements of sets differs, the whole
// table is replaced, in one step.
func filter(family nftables.TableFamily, wanted *plan.Filter) error {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return fmt.Errorf("reach nftables (does the pod have CAP_NET_ADMIN?): %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	table := &nftables.Table{Name: plan.FilterName, Family: family}
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil {
		return fmt.Errorf("list tables of nftables: %w", err)
	}
	there := slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == table.Name })
	switch {
	case wanted == nil && !there:
		return nil
	case wanted == nil:
		conn.DelTable(table)
	case there && sameRules(conn, table, wanted):
		if err := elements(conn, table, wanted.Sets); err != nil {
			return err
		}
	default:
		conn.AddTable(table)
		conn.DelTable(table)
		conn.AddTable(table)
		if err := build(conn, table, wanted); err != nil {
			return err
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("set table %s of nftables (does the kernel have nf_tables, with nat, fib and sets?): %w", table.Name, err)
	}
	return nil
}

// Filtered says that our tables are there, of both families where there are both. Somebody may have flushed all that there are.
func Filtered() bool {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return false
	}
	defer func() { _ = conn.CloseLasting() }()
	for family, needed := range map[nftables.TableFamily]bool{nftables.TableFamilyIPv4: true, nftables.TableFamilyIPv6: lane.HasIPv6()} {
		tables, err := conn.ListTablesOfFamily(family)
		if needed && (err != nil || !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == plan.FilterName })) {
			return false
		}
	}
	return true
}

func build(conn *nftables.Conn, table *nftables.Table, wanted *plan.Filter) error {
	for _, s := range wanted.Sets {
		set := kernelSet(table, s)
		if err := conn.AddSet(set, nil); err != nil {
			return fmt.Errorf("add set %s: %w", s.Name, err)
		}
		if err := change(conn.SetAddElements, set, setElements(s)); err != nil {
			return err
		}
	}
	for _, c := range wanted.Chains {
		chain := conn.AddChain(kernelChain(table, c))
		for _, m := range c.Rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: expressions(wanted, m), UserData: comment(wanted, m)})
		}
	}
	return nil
}

func kernelSet(table *nftables.Table, s plan.Set) *nftables.Set {
	kind := nftables.TypeIPAddr
	if table.Family == nftables.TableFamilyIPv6 {
		kind = nftables.TypeIP6Addr
	}
	return &nftables.Set{Table: table, Name: s.Name, KeyType: kind, Interval: !s.Hosts}
}

func kernelChain(table *nftables.Table, c plan.Chain) *nftables.Chain {
	hooks := map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput,
		"forward": nftables.ChainHookForward, "output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting}
	return &nftables.Chain{Table: table, Name: c.Name, Type: nftables.ChainType(c.Type), Hooknum: hooks[c.Hook],
		Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority))}
}

// change adds or deletes elements, not too many at once: a message has a limit.
func change(do func(*nftables.Set, []nftables.SetElement) error, set *nftables.Set, elements []nftables.SetElement) error {
	for some := range slices.Chunk(elements, 1000) {
		if err := do(set, some); err != nil {
			return fmt.Errorf("change set %s: %w", set.Name, err)
		}
	}
	return nil
}

// elements changes what differs in sets.
func elements(conn *nftables.Conn, table *nftables.Table, wanted []plan.Set) error {
	for _, w := range wanted {
		set, err := conn.GetSetByName(table, w.Name)
		if err != nil {
			return fmt.Errorf("read set %s: %w", w.Name, err)
		}
		present, err := conn.GetSetElements(set)
		if err != nil {
			return fmt.Errorf("read set %s: %w", w.Name, err)
		}
		has, should := pairs(present, w.Hosts), pairs(setElements(w), w.Hosts)
		if err := change(conn.SetDeleteElements, set, missing(has, should, w.Hosts)); err != nil {
			return err
		}
		if err := change(conn.SetAddElements, set, missing(should, has, w.Hosts)); err != nil {
			return err
		}
	}
	return nil
}

// interval is the first address of a range and the first one after it, which a single address has not.
type interval [2]string

// setElements are what the kernel has of a set: single addresses, or where each range begins and where it ends. Ranges
// that touch are one.
func setElements(s plan.Set) (elements []nftables.SetElement) {
	for _, r := range s.Ranges {
		first := r.Addr().AsSlice()
		if s.Hosts {
			elements = append(elements, nftables.SetElement{Key: first})
			continue
		}
		after := following(r)
		if last := len(elements) - 1; last >= 0 && bytes.Equal(elements[last].Key, first) {
			elements[last].Key = after
			continue
		}
		elements = append(elements, nftables.SetElement{Key: first}, nftables.SetElement{Key: after, IntervalEnd: true})
	}
	return elements
}

// following is the first address after a range.
func following(r netip.Prefix) []byte {
	after := r.Addr().AsSlice()
	for i, carry := (r.Bits()-1)/8, 1<<((8-r.Bits()%8)%8); i >= 0 && carry > 0; i, carry = i-1, carry>>8 {
		carry += int(after[i])
		after[i] = byte(carry)
	}
	return after
}

// pairs are the elements of a set, the two of each range together. The kernel tells them in any order.
func pairs(elements []nftables.SetElement, hosts bool) map[interval]bool {
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	found := map[interval]bool{}
	var begin []byte
	for _, e := range elements {
		switch {
		case hosts:
			found[interval{string(e.Key)}] = true
		case !e.IntervalEnd:
			begin = e.Key
		case begin != nil:
			found[interval{string(begin), string(e.Key)}] = true
			begin = nil
		}
	}
	return found
}

// missing are the elements that are in a and not in b.
func missing(a, b map[interval]bool, hosts bool) (elements []nftables.SetElement) {
	for i := range a {
		if b[i] {
			continue
		}
		elements = append(elements, nftables.SetElement{Key: []byte(i[0])})
		if !hosts {
			elements = append(elements, nftables.SetElement{Key: []byte(i[1]), IntervalEnd: true})
		}
	}
	return elements
}

// comment is what nft shows after a rule.
func comment(f *plan.Filter, m plan.Match) []byte {
	text := f.Text(m) + "\x00"
	return append([]byte{0, byte(len(text))}, text...) // NFTNL_UDATA_RULE_COMMENT
}

// sameRules says whether the table has the sets, the chains and the rules that are wanted.
func sameRules(conn *nftables.Conn, table *nftables.Table, wanted *plan.Filter) bool {
	sets, err := conn.GetSets(table)
	if err != nil || len(sets) != len(wanted.Sets) {
		return false
	}
	for _, s := range wanted.Sets {
		if !slices.ContainsFunc(sets, func(have *nftables.Set) bool { return have.Name == s.Name && have.Interval == !s.Hosts }) {
			return false
		}
	}
	all, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false
	}
	chains := map[string]*nftables.Chain{}
	for _, c := range all {
		if c.Table.Name == table.Name {
			chains[c.Name] = c
		}
	}
	if len(chains) != len(wanted.Chains) {
		return false
	}
	for _, c := range wanted.Chains {
		should, has := kernelChain(table, c), chains[c.Name]
		if has == nil || has.Type != should.Type || has.Hooknum == nil || *has.Hooknum != *should.Hooknum ||
			has.Priority == nil || *has.Priority != *should.Priority {
			return false
		}
		rules, err := conn.GetRules(table, has)
		same := func(has *nftables.Rule, should plan.Match) bool { return sameRule(wanted, has, should) }
		if err != nil || !slices.EqualFunc(rules, c.Rules, same) {
			return false
		}
	}
	return true
}

func sameRule(f *plan.Filter, has *nftables.Rule, should plan.Match) bool {
	return bytes.Equal(has.UserData, comment(f, should)) && slices.EqualFunc(has.Exprs, expressions(f, should), func(a, b expr.Any) bool {
		first, err := expr.Marshal(unix.NFPROTO_IPV4, a)
		second, otherErr := expr.Marshal(unix.NFPROTO_IPV4, b)
		return err == nil && otherErr == nil && bytes.Equal(first, second)
	})
}

// expressions are a rule of a filter as the kernel has it.
func expressions(f *plan.Filter, m plan.Match) (e []expr.Any) {
	// Where the addresses are in the header, and how long.
	family, source, destination, length := uint32(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if f.IPv6 {
		family, source, destination, length = unix.NFPROTO_IPV6, 8, 24, 16
	}
	add := func(some ...expr.Any) { e = append(e, some...) }
	equal := func(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
	link := func(key expr.MetaKey, name string) {
		if begin, cut := strings.CutSuffix(name, "*"); cut {
			add(&expr.Meta{Key: key, Register: 1}, equal([]byte(begin)))
		} else if name != "" {
			padded := make([]byte, unix.IFNAMSIZ)
			copy(padded, name)
			add(&expr.Meta{Key: key, Register: 1}, equal(padded))
		}
	}
	address := func(offset uint32, set string) {
		if set != "" {
			name, not := strings.CutPrefix(set, "!")
			add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
				&expr.Lookup{SourceRegister: 1, SetName: name, Invert: not})
		}
	}
	protocol := func(number byte) { add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{number})) }
	link(expr.MetaKeyIIFNAME, m.In)
	link(expr.MetaKeyOIFNAME, m.Out)
	address(source, m.From)
	address(destination, m.To)
	if m.Port != 0 {
		protocol(unix.IPPROTO_UDP)
		add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			equal(binaryutil.BigEndian.PutUint16(m.Port)))
	}
	if m.Tracked {
		add(&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(expr.CtStateBitUNTRACKED)})
	}
	if m.Astray {
		add(&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}, equal([]byte{0, 0, 0, 0}))
	}
	if m.SYN {
		protocol(unix.IPPROTO_TCP)
		const flags, syn = 13, 0x02 // where the flags are in the header, and which of them it is
		add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn}, Xor: []byte{0}}, equal([]byte{syn}))
	}
	switch {
	case m.Extra && f.IPv6:
		const present = 1 // NFT_EXTHDR_F_PRESENT
		add(&expr.Exthdr{DestRegister: 1, Type: m.Header, Len: 1, Flags: present, Op: expr.ExthdrOpIpv6}, equal([]byte{1}))
	case m.Extra:
		const length, none = 0x0f, 5 // of the header, in words
		add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{length}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{none}})
	}
	switch m.Do {
	case plan.LetIn:
		add(&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(^uint32(plan.Mark)),
				Xor: binaryutil.NativeEndian.PutUint32(plan.Mark)},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
	case plan.Accept:
		add(&expr.Verdict{Kind: expr.VerdictAccept})
	case plan.Drop:
		add(&expr.Verdict{Kind: expr.VerdictDrop})
	case plan.Forget:
		add(&expr.Notrack{})
	case plan.Keep:
		add(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: length},
			// The kernel tells both ends of the range: a rule with one would never be found to be as it should.
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: 1, RegAddrMax: 1})
	case plan.SetMSS:
		const option, offset = 2, 2 // the kernel only ever makes it smaller
		add(&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(m.MSS)},
			&expr.Exthdr{SourceRegister: 1, Type: option, Offset: offset, Len: 2, Op: expr.ExthdrOpTcpopt})
	}
	return e
}
