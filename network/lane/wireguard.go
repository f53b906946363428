package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const (
	// keepalive is how often something is sent while no program runs, so that what is between the gateways does not forget the way back.
	keepalive = 25 * time.Second
	// compare is how often the link is compared with what it should be; retry, if it could not be made so.
	compare, retry = 5 * time.Second, time.Second
	// linger is how long a link that is no longer wanted, or gets another key, still takes what the other side sends, which does not yet know.
	linger = time.Second
	// session is how long WireGuard carries packets after a handshake.
	session = 3 * time.Minute
	// patience is how long WireGuard may take to be up again before TLS, which is, takes over: it lasts while a program is restarted.
	patience = lost * every
)

// wireGuard keeps one link of WireGuard, with one peer. WireGuard itself takes minutes to notice that nobody answers, and nobody has
// an address in it. So each side sends the empty packets ten times a second that WireGuard has to keep the way open, counts what comes,
// and says on connections of TLS what it hears. It is not safe for concurrent use.
type wireGuard struct {
	// name is that of the link, whether it is there or not.
	name, directory string
	wireGuardState

	// private is the key that the link has; next, which is in the directory, takes its place once packets go by TLS; zero: there is none.
	private, next WireGuardPrivateKey
	control       *wgctrl.Client // nil: not yet needed
	// done is what the link was last made to be, and when that was compared, with what failed.
	done     wireGuardConfig
	compared time.Time
	failed   error

	received      int64 // bytes, when something came last; 0: that is not yet known
	heard, ticked time.Time
	tls           time.Time // since when TLS is up; zero: it is not
	unwanted      time.Time // since when nobody wants the link, or not with this key; zero: somebody does
	gone          bool      // it is unwanted, and was removed
}

// wireGuardConfig is what a link is to be.
type wireGuardConfig struct {
	*WireGuard
	end     *WireGuardEnd // of the peer; nil: it has none yet
	address string        // of the peer; empty: it dials
}

// keep brings the link in line, and finds out whether packets go through. What is said beside it is nil where the peer is not known; tls
// says whether TLS is up.
func (w *wireGuard) keep(wanted *WireGuard, peer Peer, beside *beside, tls bool) {
	at := time.Now()
	switch {
	case !tls:
		w.tls = time.Time{}
	case w.tls.IsZero():
		w.tls = at
	}
	w.problem = ""
	up := false
	switch {
	case wanted == nil || wanted.Instead != "":
		w.part(at)
	case tls && w.next != (WireGuardPrivateKey{}):
		w.rekey(at)
	default:
		w.unwanted, w.gone = time.Time{}, false
		up = w.join(wireGuardConfig{wanted, peer.WireGuard, peer.Address}, beside, at)
	}
	if beside != nil {
		beside.hears.Store(w.hears(at) && w.unwanted.IsZero() && w.link != "")
	}
	w.up = up
	switch {
	case w.link == "":
		w.used = false
	case up:
		w.used = true
	case !w.unwanted.IsZero(), !w.tls.IsZero() && at.Sub(w.tls) > patience:
		w.used = false
	}
}

// leave has both sides send by TLS, and says whether nothing comes by the link any more.
func (w *wireGuard) leave(at time.Time) bool {
	w.end = nil
	if w.unwanted.IsZero() {
		w.unwanted = at
	}
	return at.Sub(w.unwanted) > linger
}

// part removes the link once nothing comes by it any more.
func (w *wireGuard) part(at time.Time) {
	if w.leave(at) && !w.gone && RemoveLink(w.name) == nil {
		w.link, w.gone = "", true
	}
}

// rekey gives the link its next key once nothing comes by it any more. The other side has to be told of that key before it takes packets
// again.
func (w *wireGuard) rekey(at time.Time) {
	w.problem = "this gateway gets another key for WireGuard"
	if w.leave(at) {
		w.private, w.next, w.compared = w.next, WireGuardPrivateKey{}, time.Time{}
	}
}

// join has the link be there, and says whether packets go through both ways.
func (w *wireGuard) join(config wireGuardConfig, beside *beside, at time.Time) (up bool) {
	age := at.Sub(w.compared)
	if w.done.WireGuard == nil || config.Peer != w.done.Peer || !reflect.DeepEqual(config.end, w.done.end) {
		w.received, w.heard = 0, time.Time{} // what came, came from somebody else
	}
	if !reflect.DeepEqual(config, w.done) || age > compare || w.failed != nil && age > retry {
		w.failed = w.set(config, at)
		w.done, w.compared = config, time.Now()
		if w.failed != nil {
			w.end = nil
		}
	}
	if w.failed != nil {
		w.problem = w.failed.Error()
		return false
	}
	if config.end == nil {
		w.problem = fmt.Sprintf("gateway %s offers no WireGuard: the NetworkLink of that cluster, or the log there, says why", config.Peer)
		return false
	}
	if err := w.look(config.end.Key, at); err != nil {
		w.problem, w.compared = err.Error(), time.Time{}
		return false
	}
	if at.Sub(w.ticked) >= every-every/8 {
		w.ticked = at
		if err := w.tick(config.end.Key); err != nil {
			w.problem = err.Error()
			return false
		}
	}
	if w.hears(at) && beside != nil && beside.heard() {
		return true
	}
	where := "from where it dials"
	if config.address != "" {
		where = fmt.Sprintf("to UDP port %d there", config.end.Port)
	} else if config.Port != 0 {
		where = fmt.Sprintf("to UDP port %d here", config.Port)
	}
	w.problem = fmt.Sprintf("nothing comes through by WireGuard between this gateway and %s: see whether packets come through %s",
		config.Peer, where)
	return false
}

// hears says that something came of late.
func (w *wireGuard) hears(at time.Time) bool {
	return !w.heard.IsZero() && at.Sub(w.heard) < lost*every
}

// look finds out whether something has come.
func (w *wireGuard) look(key WireGuardKey, at time.Time) error {
	device, err := w.control.Device(w.link)
	if err != nil {
		w.link = ""
		return fmt.Errorf("look at WireGuard: %w", err)
	}
	for _, p := range device.Peers {
		if p.PublicKey == wgtypes.Key(key) {
			if p.ReceiveBytes > w.received && w.received > 0 {
				w.heard = at
			}
			w.received = max(1, p.ReceiveBytes)
		}
	}
	return nil
}

// tick has an empty packet sent: WireGuard sends one at once when it begins to keep a way open.
func (w *wireGuard) tick(key WireGuardKey) error {
	peer := func(interval time.Duration) wgtypes.PeerConfig {
		return wgtypes.PeerConfig{PublicKey: wgtypes.Key(key), UpdateOnly: true, PersistentKeepaliveInterval: &interval}
	}
	err := w.control.ConfigureDevice(w.link, wgtypes.Config{Peers: []wgtypes.PeerConfig{peer(0), peer(keepalive)}})
	if err != nil {
		return fmt.Errorf("send by WireGuard: %w", err)
	}
	return nil
}

// set makes the link what it should be, if it is not.
func (w *wireGuard) set(config wireGuardConfig, at time.Time) (err error) {
	kept, err := LoadWireGuardKey(w.directory)
	if err != nil {
		return err
	}
	link, err := wireGuardLink(w.name)
	if err != nil {
		return err
	}
	if link.Attrs().MTU != config.MTU {
		if err := netlink.LinkSetMTU(link, config.MTU); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", w.name, config.MTU, err)
		}
	}
	if err := OnlyIPv4(link); err != nil {
		return err
	}
	if w.control == nil { // only now the kernel has loaded what it needs
		if w.control, err = wgctrl.New(); err != nil {
			return fmt.Errorf("reach WireGuard: %w", err)
		}
	}
	has, err := w.control.Device(w.name)
	if err != nil {
		w.close()
		return fmt.Errorf("find WireGuard at link %s: %w", w.name, err)
	}
	// A program that has just begun has none: the link, if it is there, may carry packets by a key from before.
	w.private = cmp.Or(w.private, WireGuardPrivateKey(has.PrivateKey), kept)
	if w.next = kept; kept == w.private {
		w.next = WireGuardPrivateKey{}
	}
	var to *net.UDPAddr
	if config.end != nil && config.address != "" && !w.hears(at) {
		if to, err = resolve(config.address, config.end.Port); err != nil {
			return err
		}
	}
	if change, differs := config.change(has, wgtypes.Key(w.private), to); differs {
		if err := w.control.ConfigureDevice(w.name, change); err != nil {
			return fmt.Errorf("set WireGuard at link %s, UDP port %d: %w", w.name, config.Port, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set link %s up, with WireGuard at UDP port %d (does another program listen there?): %w", w.name,
				config.Port, err)
		}
	}
	w.link, w.end = w.name, &WireGuardEnd{w.private.Public(), config.Port}
	return nil
}

// change is what to change of a link; false: nothing.
func (c wireGuardConfig) change(has *wgtypes.Device, private wgtypes.Key, to *net.UDPAddr) (change wgtypes.Config, differs bool) {
	if has.PrivateKey != private {
		change.PrivateKey, differs = &private, true
	}
	if port := int(c.Port); port != 0 && has.ListenPort != port {
		change.ListenPort, differs = &port, true
	}
	known := false
	for _, p := range has.Peers {
		if c.end == nil || p.PublicKey != wgtypes.Key(c.end.Key) {
			change.Peers, differs = append(change.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true}), true
			continue
		}
		moved := to != nil && (p.Endpoint == nil || p.Endpoint.String() != to.String())
		known = !moved && slices.Equal(prefixes(p.AllowedIPs), c.Ranges)
	}
	if c.end != nil && !known {
		interval := keepalive
		peer := wgtypes.PeerConfig{PublicKey: wgtypes.Key(c.end.Key), Endpoint: to, ReplaceAllowedIPs: true,
			PersistentKeepaliveInterval: &interval}
		for _, r := range c.Ranges {
			peer.AllowedIPs = append(peer.AllowedIPs, net.IPNet{IP: r.Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen())})
		}
		change.Peers, differs = append(change.Peers, peer), true
	}
	return change, differs
}

// prefixes are what WireGuard has, in their order.
func prefixes(networks []net.IPNet) (all []netip.Prefix) {
	for _, n := range networks {
		address, _ := netip.AddrFromSlice(n.IP)
		bits, _ := n.Mask.Size()
		all = append(all, netip.PrefixFrom(address.Unmap(), bits))
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// wireGuardLink returns the link of this name, and makes it if there is none.
func wireGuardLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if err == nil || !errors.As(err, &missing) {
		return link, err
	}
	err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name}})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.New("the kernel of this node has no WireGuard: load its module wireguard, or use TLS")
	}
	if err != nil {
		return nil, fmt.Errorf("make link %s: %w", name, err)
	}
	return netlink.LinkByName(name)
}

// resolve returns where a gateway is reached by UDP, from the address at which it is dialed by TCP.
func resolve(address string, port uint16) (*net.UDPAddr, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the gateway's address %s is none: %w", address, err)
	}
	if port == 0 {
		return nil, errors.New("that gateway says no UDP port at which it listens for WireGuard")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("find %s, for WireGuard: %w", host, cmp.Or(err, errors.New("it has no address")))
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(found[0].Unmap(), port)), nil
}

// carries says that a link is WireGuard, and that there was a handshake of late.
func carries(link string) bool {
	if _, err := netlink.LinkByName(link); err != nil {
		return false
	}
	control, err := wgctrl.New()
	if err != nil {
		return false
	}
	defer control.Close()
	device, err := control.Device(link)
	return err == nil && slices.ContainsFunc(device.Peers, func(p wgtypes.Peer) bool { return time.Since(p.LastHandshakeTime) < session })
}

func (w *wireGuard) close() {
	if w.control != nil {
		_ = w.control.Close()
		w.control = nil
	}
}
