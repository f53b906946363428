package path

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// sizes are those of packets and of what connections carry, in bytes.
var udpSizes, tcpSizes = []int{64, 850, 1400, 9000}, []int{64, 128 << 10}

// tries are all packets and connections with which a way is tried.
func tries() (all []pathcheck.Result) {
	for _, size := range udpSizes {
		all = append(all, pathcheck.Result{Protocol: "UDP", Bytes: size})
	}
	for _, size := range tcpSizes {
		all = append(all, pathcheck.Result{Protocol: "TCP", Bytes: size})
	}
	return all
}

// try says what became of one, from a pod that is seen by an address to another one.
func try(ctx context.Context, one pathcheck.Result, own, to netip.Addr) pathcheck.Result {
	at, sent := netip.AddrPortFrom(to, Port), content(one.Bytes)
	what, ask := fmt.Sprintf("UDP packets of %d bytes", one.Bytes), func() (netip.Addr, error) { return AskUDP(at, sent) }
	if one.Protocol == "TCP" {
		what = fmt.Sprintf("TCP connections with %d bytes", one.Bytes)
		ask = func() (netip.Addr, error) { return AskTCP(ctx, at, sent) }
	}
	if to.Is6() {
		what += " by IPv6"
	}
	began := time.Now()
	if one.Problem = judge(what, own, to, func() (netip.Addr, error) { began = time.Now(); return ask() }); one.Problem == "" {
		one.Microseconds = max(1, time.Since(began).Microseconds())
	}
	return one
}

// judge tries twice, since single packets may get lost anywhere.
func judge(what string, own, to netip.Addr, ask func() (netip.Addr, error)) string {
	seen, err := ask()
	if err != nil {
		seen, err = ask()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s to pod %s are not answered within %v", what, to, patience)
	case err != nil:
		return sentence.Plain(fmt.Sprintf("%s to pod %s: %v", what, to, err), networkv1alpha1.MaxMessage)
	case seen != own:
		return fmt.Sprintf("pod %s sees address %s and not %s, by which it reaches this one: something between translates addresses",
			to, seen, own)
	}
	return ""
}

// Check tries the way from a pod that is seen by an address to another one, once that answers at all or a while has passed.
func Check(ctx context.Context, own, to netip.Addr, while time.Duration) (results []pathcheck.Result) {
	for began := time.Now(); time.Since(began) < while && ctx.Err() == nil; time.Sleep(every / 10) {
		if _, err := AskUDP(netip.AddrPortFrom(to, Port), content(1)); err == nil {
			break
		}
	}
	for _, one := range tries() {
		results = append(results, try(ctx, one, own, to))
	}
	return results
}
