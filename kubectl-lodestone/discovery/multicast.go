package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
)

// local is the domain of what is announced by multicast (RFC 6762).
const local = "local"

// group is where questions by multicast go.
var group = &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}

const (
	// answersWithin is how long answers to a question by multicast are awaited: nobody knows how many will come.
	answersWithin = 2 * time.Second
	// largest is the largest packet of mDNS, maxPackets how many are read of one question.
	largest, maxPackets = 9000, 1000
	// hops is the time to live that packets of mDNS have.
	hops = 255
)

// multicastLinks returns the network interfaces that can send by multicast.
func multicastLinks() ([]net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	var links []net.Interface
	for _, one := range all {
		if one.Flags&net.FlagUp != 0 && one.Flags&net.FlagMulticast != 0 {
			links = append(links, one)
		}
	}
	if len(links) == 0 {
		return nil, errors.New("no network interface of this machine can send by multicast: use --domain")
	}
	return links, nil
}

// askNetworks asks for announcements on the networks of this machine. Answers come to a port of its own, to which each of those that
// answer sends them directly (RFC 6762, 6.7), and are awaited for a time; then those that have come without their TXT record are asked
// for that.
func askNetworks(ctx context.Context) (Found, error) {
	links, err := multicastLinks()
	if err != nil {
		return Found{}, err
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", ":0")
	if err != nil {
		return Found{}, fmt.Errorf("open a socket: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	all := newAnswers(local)
	for _, question := range []func() *dns.Msg{
		func() *dns.Msg { return new(dns.Msg).SetQuestion(all.zone, dns.TypePTR) },
		func() *dns.Msg { return all.missing() },
	} {
		message := question()
		if message == nil {
			break
		}
		// Packets get lost: each question is sent twice.
		for range 2 {
			if err := multicast(ipv4.NewPacketConn(conn), links, message); err != nil {
				return Found{}, fmt.Errorf("nothing can be asked on the networks of this machine: %w; use --domain", err)
			}
			if err := all.hear(conn, message.Id, time.Now().Add(answersWithin/2)); err != nil && ctx.Err() == nil {
				return Found{}, fmt.Errorf("hear answers: %w", err)
			}
		}
	}
	if ctx.Err() != nil {
		return Found{}, fmt.Errorf("stopped while answers were awaited: %w", ctx.Err())
	}
	return all.found(), nil
}

// missing is a question for the TXT records that have not come; nil if none is missing.
func (a *answers) missing() *dns.Msg {
	message := new(dns.Msg)
	message.Id = dns.Id()
	for _, name := range a.unasked() {
		message.Question = append(message.Question, dns.Question{Name: name + "." + a.zone, Qtype: dns.TypeTXT, Qclass: dns.ClassINET})
	}
	if len(message.Question) == 0 {
		return nil
	}
	return message
}

// multicast sends a message on all links. It returns an error if that works on none.
func multicast(conn *ipv4.PacketConn, links []net.Interface, message *dns.Msg) error {
	content, err := message.Pack()
	if err != nil {
		return fmt.Errorf("write a message of DNS: %w", err)
	}
	if err := conn.SetMulticastTTL(hops); err != nil {
		return err
	}
	var failed error
	worked := false
	for i := range links {
		err := conn.SetMulticastInterface(&links[i])
		if err == nil {
			_, err = conn.WriteTo(content, nil, group)
		}
		if err != nil {
			failed = fmt.Errorf("%s: %w", links[i].Name, err)
		}
		worked = worked || err == nil
	}
	if worked {
		return nil
	}
	return failed
}

// hear adds the answers to a message that come until a time.
func (a *answers) hear(conn net.PacketConn, id uint16, until time.Time) error {
	if err := conn.SetReadDeadline(until); err != nil {
		return err
	}
	buffer := make([]byte, largest)
	for range maxPackets {
		n, from, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
		// Whoever answers does so from the port of mDNS.
		if sender, is := from.(*net.UDPAddr); !is || sender.Port != group.Port {
			continue
		}
		a.take(buffer[:n], id)
	}
	a.more = true
	return nil
}

// take adds what a message says that answers the one with an ID.
func (a *answers) take(content []byte, id uint16) {
	var message dns.Msg
	if message.Unpack(content) != nil || !message.Response || message.Id != id {
		return
	}
	for _, records := range [][]dns.RR{message.Answer, message.Extra} {
		for _, record := range records {
			a.add(record)
		}
	}
}
