package discovery

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/time/rate"
)

const (
	// heldFor is for how many seconds others keep what they heard, heldByAll for how many those that do not speak mDNS may (RFC 6762, 6.7).
	heldFor, heldByAll = 120, 10
	// answersPerSecond limits what one answers on a network: a few dozen askers need no more.
	answersPerSecond = 20
	// services is the name under which all types of services are listed.
	services = "_services._dns-sd._udp." + local + "."
	// firstClass is the bit of a class that asks for an answer to the asker alone, and in an answer says that others are outdated.
	firstClass = 1 << 15
)

// responder answers questions for the announcement of a cluster by multicast.
type responder struct {
	conn  *ipv4.PacketConn
	links []net.Interface
	of    Announcement
	limit *rate.Limiter
}

// listen makes a responder that hears questions on all networks of the machine. Others on the machine may do so, too.
func listen(of Announcement) (*responder, error) {
	links, err := multicastLinks()
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenMulticastUDP("udp4", &links[0], group)
	if err != nil {
		return nil, fmt.Errorf("questions cannot be heard at %s: %w; end what uses that port for itself, or use --domain", group, err)
	}
	conn := ipv4.NewPacketConn(udp)
	for i := range links[1:] {
		// A link that takes no part is left out, as one that is down.
		_ = conn.JoinGroup(&links[i+1], group)
	}
	// Where the system does not tell on which link a question came, answers go to all.
	_ = conn.SetControlMessage(ipv4.FlagInterface, true)
	_ = conn.SetMulticastLoopback(true)
	return &responder{conn: conn, links: links, of: of, limit: rate.NewLimiter(answersPerSecond, answersPerSecond)}, nil
}

// serve announces the cluster and answers until ctx ends. Then it says that the cluster is announced no more.
func (r *responder) serve(ctx context.Context) error {
	defer r.conn.Close()
	if err := multicast(r.conn, r.links, r.unasked(heldFor)); err != nil {
		return fmt.Errorf("nothing can be announced on the networks of this machine: %w", err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = multicast(r.conn, r.links, r.unasked(0))
		r.conn.Close()
	})
	buffer := make([]byte, largest)
	for {
		n, at, from, err := r.conn.ReadFrom(buffer)
		if err != nil {
			if !stop() {
				<-ended
				return nil
			}
			return fmt.Errorf("hear questions: %w", err)
		}
		sender, is := from.(*net.UDPAddr)
		if !is {
			continue
		}
		message, alone := r.answer(buffer[:n], sender.Port != group.Port)
		switch {
		case message == nil || !r.limit.Allow():
		case alone:
			if content, err := message.Pack(); err == nil {
				_, _ = r.conn.WriteTo(content, nil, sender)
			}
		default:
			// Whoever does not hear it asks again.
			_ = multicast(r.conn, r.on(at), message)
		}
	}
}

// on returns the link on which a question came, or all if that is not known.
func (r *responder) on(at *ipv4.ControlMessage) []net.Interface {
	if at != nil {
		for _, link := range r.links {
			if link.Index == at.IfIndex {
				return []net.Interface{link}
			}
		}
	}
	return r.links
}

// unasked is a message with all records, valid for a number of seconds; none: they are no more.
func (r *responder) unasked(seconds uint32) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: own(r.of.records(local, seconds))}
}

// own marks records that nobody else has, so that whoever hears them forgets earlier ones.
func own(records []dns.RR) []dns.RR {
	for _, record := range records {
		if header := record.Header(); header.Rrtype != dns.TypePTR {
			header.Class |= firstClass
		}
	}
	return records
}

// answer returns the answer to a message, nil if there is none, and whether it goes to the asker alone. simple: the asker speaks DNS,
// and waits for an answer as a DNS server gives it.
func (r *responder) answer(content []byte, simple bool) (answer *dns.Msg, alone bool) {
	var question dns.Msg
	if question.Unpack(content) != nil || question.Response || question.Opcode != dns.OpcodeQuery {
		return nil, false
	}
	seconds := uint32(heldFor)
	if simple {
		seconds = heldByAll
	}
	all := r.of.records(local, seconds)
	answer, alone = r.unasked(seconds), true
	answer.Answer = nil
	for _, one := range question.Question {
		if class := one.Qclass &^ firstClass; class != dns.ClassINET && class != dns.ClassANY {
			continue
		}
		name, before := dns.CanonicalName(one.Name), len(answer.Answer)
		if name == services && (one.Qtype == dns.TypePTR || one.Qtype == dns.TypeANY) {
			header := dns.RR_Header{Name: services, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: seconds}
			answer.Answer = append(answer.Answer, &dns.PTR{Hdr: header, Ptr: zone(local)})
		}
		for _, record := range all {
			if record.Header().Name == name && (one.Qtype == record.Header().Rrtype || one.Qtype == dns.TypeANY) &&
				!slices.Contains(answer.Answer, record) && !known(question.Answer, record) {
				answer.Answer = append(answer.Answer, record)
			}
		}
		if len(answer.Answer) > before {
			alone = alone && one.Qclass&firstClass != 0
		}
	}
	if len(answer.Answer) == 0 {
		return nil, false
	}
	for _, record := range all {
		if !slices.Contains(answer.Answer, record) {
			answer.Extra = append(answer.Extra, record)
		}
	}
	if simple {
		answer.Id, answer.Question = question.Id, question.Question[:1]
		return answer, true
	}
	own(answer.Answer)
	own(answer.Extra)
	return answer, alone
}

// known says whether an asker has a record already, for at least half of its time.
func known(has []dns.RR, record dns.RR) bool {
	return slices.ContainsFunc(has, func(one dns.RR) bool {
		return dns.IsDuplicate(one, record) && one.Header().Ttl >= record.Header().Ttl/2
	})
}
