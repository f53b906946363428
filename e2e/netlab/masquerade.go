package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// This file has nodes change the source addresses of what leaves the pods' own network, as the networks of clusters do.

// Unmask has nodes no longer masquerade, as clusters are set up whose networks are routed.
func (l *Lab) Unmask() (err error) {
	for _, n := range l.Nodes() {
		conn, failed := nftables.New(nftables.WithNetNSFd(int(n.handle)))
		if failed == nil {
			conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "cni"})
			failed = conn.Flush()
		}
		err = errors.Join(err, failed)
	}
	return err
}

// masqueradeBy has a program do what masquerade does.
func masqueradeBy(program string, n *Namespace, pods netip.Prefix) error {
	for _, rule := range [][]string{{"-s", pods.String(), "!", "-d", pods.String()}, {"!", "-s", pods.String(), "-d", pods.String()}} {
		command := exec.Command(program, slices.Concat([]string{"-w", "-t", "nat", "-A", "POSTROUTING"}, rule, []string{"-j", "MASQUERADE"})...)
		var said bytes.Buffer
		command.Stdout, command.Stderr = &said, &said
		if err := n.Start(command); err != nil {
			return fmt.Errorf("start %s: %w", program, err)
		}
		if err := command.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", program, err, said.String())
		}
	}
	return nil
}

// masquerade is what networks of clusters do: what leaves for elsewhere has the node's address, and, with flannel, what comes from
// elsewhere has too.
func masquerade(n *Namespace, pods netip.Prefix) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.handle)))
	if err != nil {
		return err
	}
	family, source, destination := nftables.TableFamilyIPv4, uint32(12), uint32(16) // and where addresses are in the header
	if pods.Addr().Is6() {
		family, source, destination = nftables.TableFamilyIPv6, 8, 24
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "cni"})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "post", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource})
	first := pods.Addr().AsSlice()
	length := uint32(len(first))
	mask := net.CIDRMask(pods.Bits(), pods.Addr().BitLen())
	match := func(offset uint32, op expr.CmpOp) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: mask, Xor: make([]byte, length)},
			&expr.Cmp{Op: op, Register: 1, Data: first}}
	}
	for _, ops := range [][2]expr.CmpOp{{expr.CmpOpEq, expr.CmpOpNeq}, {expr.CmpOpNeq, expr.CmpOpEq}} {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain,
			Exprs: append(append(match(source, ops[0]), match(destination, ops[1])...), &expr.Masq{})})
	}
	return conn.Flush()
}
