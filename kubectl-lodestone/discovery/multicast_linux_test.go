package discovery

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// alone has the test go on in a network namespace of its own, whose loopback takes multicast: nothing is heard outside.
func alone(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	namespace, err := netns.New()
	if err != nil {
		require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), "a network namespace needs root: %v; and nothing is to be skipped", err)
		t.Skipf("a network namespace needs root: %v", err)
	}
	t.Cleanup(func() { namespace.Close() })
	loopback, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetMulticastOn(loopback))
	require.NoError(t, netlink.LinkSetUp(loopback))
}

// announced serves an announcement until the test, or the function that is returned, ends that.
func announced(t *testing.T, one Announcement) (end func()) {
	t.Helper()
	r, err := listen(one)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.serve(ctx) }()
	return func() {
		cancel()
		assert.NoError(t, <-ended)
	}
}

func TestAnnouncementsAreFoundByMulticast(t *testing.T) {
	alone(t)
	east := west()
	east.Name, east.Server = "east", "https://192.0.2.11:6443"
	endWest, endEast := announced(t, west()), announced(t, east)
	defer endEast()
	found, err := askNetworks(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Found{Announcements: []Announcement{east, west()}}, found)

	// Who speaks mDNS hears that one is gone.
	udp, err := net.ListenMulticastUDP("udp4", &net.Interface{Index: 1, Name: "lo"}, group)
	require.NoError(t, err)
	defer udp.Close()
	endWest()
	buffer := make([]byte, largest)
	require.NoError(t, udp.SetReadDeadline(time.Now().Add(5*time.Second)))
	n, err := udp.Read(buffer)
	require.NoError(t, err)
	var message dns.Msg
	require.NoError(t, message.Unpack(buffer[:n]))
	require.NotEmpty(t, message.Answer)
	assert.Equal(t, "west."+zone(local), message.Answer[0].(*dns.PTR).Ptr)
	assert.Zero(t, message.Answer[0].Header().Ttl)

	found, err = askNetworks(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Found{Announcements: []Announcement{east}}, found)
}

func TestWithoutANetworkForMulticastThatIsSaid(t *testing.T) {
	alone(t)
	loopback, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetDown(loopback))
	_, err = askNetworks(t.Context())
	assert.ErrorContains(t, err, "use --domain")
	_, err = listen(west())
	assert.ErrorContains(t, err, "use --domain")
}

// asked is a message with questions.
func asked(questions ...dns.Question) *dns.Msg {
	message := new(dns.Msg)
	message.Id, message.Question = 7, questions
	return message
}

func TestQuestionsAreAnsweredAsMDNSSays(t *testing.T) {
	r := responder{of: west()}
	pointers := dns.Question{Name: zone(local), Qtype: dns.TypePTR, Qclass: dns.ClassINET}
	types := dns.Question{Name: services, Qtype: dns.TypePTR, Qclass: dns.ClassINET}
	everything := dns.Question{Name: "WEST." + zone(local), Qtype: dns.TypeANY, Qclass: dns.ClassANY}
	has := func(seconds uint32) *dns.Msg {
		return &dns.Msg{Question: []dns.Question{pointers}, Answer: west().records(local, seconds)[:1]}
	}
	toMe := pointers
	toMe.Qclass |= firstClass
	for name, row := range map[string]struct {
		question       *dns.Msg
		simple         bool
		answers, extra int
		alone          bool
	}{
		"of a DNS client":         {question: asked(pointers), simple: true, answers: 1, extra: 3, alone: true},
		"of all":                  {question: asked(pointers), answers: 1, extra: 3},
		"of one that says so":     {question: asked(toMe), answers: 1, extra: 3, alone: true},
		"of types of services":    {question: asked(types), answers: 1, extra: 4},
		"of all of an instance":   {question: asked(everything), answers: 2, extra: 2},
		"of another instance":     {question: asked(dns.Question{Name: "east." + zone(local), Qtype: dns.TypeTXT, Qclass: dns.ClassINET})},
		"of another class":        {question: asked(dns.Question{Name: zone(local), Qtype: dns.TypePTR, Qclass: dns.ClassCHAOS})},
		"nothing":                 {question: asked()},
		"what is no question":     {question: new(dns.Msg).SetReply(asked(pointers))},
		"of one that has it":      {question: has(heldFor)},
		"of one that had it once": {question: has(1), answers: 1, extra: 3},
		"the same twice":          {question: asked(pointers, pointers), answers: 1, extra: 3},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := row.question.Pack()
			require.NoError(t, err)
			answer, alone := r.answer(content, row.simple)
			if row.answers == 0 {
				assert.Nil(t, answer)
				return
			}
			require.NotNil(t, answer)
			assert.Len(t, answer.Answer, row.answers)
			assert.Len(t, answer.Extra, row.extra)
			assert.Equal(t, row.alone, alone)
			if row.simple {
				assert.Equal(t, row.question.Id, answer.Id)
				assert.Len(t, answer.Question, 1)
				assert.LessOrEqual(t, answer.Answer[0].Header().Ttl, uint32(heldByAll))
			} else {
				assert.Zero(t, answer.Id)
				assert.Empty(t, answer.Question)
			}
			_, err = answer.Pack()
			assert.NoError(t, err)
		})
	}
}
