package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hash is one of an authority, and other of another one.
var hash, other = "sha256:" + strings.Repeat("0a", 32), "sha256:" + strings.Repeat("b1", 32)

// west is an announcement with all that there can be.
func west() Announcement {
	return Announcement{Name: "west", Server: "https://192.0.2.10:6443", CAHash: hash, Version: "v1.36.3", UID: "1f3a5c7e-0000-4000-8000-1",
		Classes: []string{"fast", "slow"}}
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	for name, change := range map[string]func(*Announcement){
		"an address in digits":           func(*Announcement) {},
		"an address of IPv6":             func(a *Announcement) { a.Server = "https://[2001:db8::1]:6443" },
		"a name":                         func(a *Announcement) { a.Server = "https://api.west.example.com:443" },
		"without classes":                func(a *Announcement) { a.Classes = nil },
		"without anything but the needs": func(a *Announcement) { a.Classes, a.Version, a.UID = nil, "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			one, all := west(), newAnswers("fabric.example.com")
			change(&one)
			for _, record := range one.records("fabric.example.com", zoneTTL) {
				// As a line of a zone file, and back.
				parsed, err := dns.NewRR(record.String())
				require.NoError(t, err)
				require.Equal(t, record.String(), parsed.String())
				all.add(parsed)
			}
			assert.Equal(t, Found{Announcements: []Announcement{one}}, all.found())
		})
	}
}

func TestClassesForWhichThereIsNoRoomAreLeftOut(t *testing.T) {
	one := west()
	one.Classes = nil
	for i := range 40 {
		one.Classes = append(one.Classes, fmt.Sprintf("a-class-with-a-long-name-%02d", i))
	}
	for _, text := range one.texts() {
		assert.LessOrEqual(t, len(text), maxText)
	}
	back, usable := read("west", one.texts())
	assert.True(t, usable)
	assert.Equal(t, one.Classes[:len(back.Classes)], back.Classes)
	assert.NotEmpty(t, back.Classes)
}

func TestOnlyAddressesOfAPIServersAreTaken(t *testing.T) {
	for text, want := range map[string]string{
		"https://192.0.2.10:6443":               "https://192.0.2.10:6443",
		"https://api.example.com":               "https://api.example.com:443",
		"https://api.example.com/":              "https://api.example.com:443",
		"https://[2001:db8::1]:6443":            "https://[2001:db8::1]:6443",
		"http://192.0.2.10:6443":                "",
		"https://192.0.2.10:6443/clusters/mine": "",
		"https://you@192.0.2.10:6443":           "",
		"https://192.0.2.10:6443?a=b":           "",
		"https://192.0.2.10:6443#a":             "",
		"https://192.0.2.10:port":               "",
		"https://192.0.2.10:99999":              "",
		"https://a b":                           "",
		"https://a\x1b[31m":                     "",
		"https://":                              "",
		"file:///etc/passwd":                    "",
		"192.0.2.10:6443":                       "",
		"":                                      "",
		"https://" + strings.Repeat("a", maxServer) + ":1": "",
	} {
		assert.Equal(t, want, server(text), text)
	}
}

// texts is a TXT record of a name in the zone of example.com.
func texts(name string, all ...string) dns.RR {
	header := dns.RR_Header{Name: name + "." + zone("example.com"), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1 << 31}
	return &dns.TXT{Hdr: header, Txt: all}
}

// pointer is a PTR record of the zone of example.com.
func pointer(to string) dns.RR {
	return &dns.PTR{Hdr: dns.RR_Header{Name: zone("example.com"), Rrtype: dns.TypePTR, Class: dns.ClassINET}, Ptr: to}
}

// hostile are records that somebody may send, beside those of west, and what is left out for them.
var hostile = map[string]struct {
	records []dns.RR
	found   Found
}{
	"nothing else": {nil, Found{Announcements: []Announcement{west()}}},
	"names that no cluster can have": {[]dns.RR{pointer("a\\027[31m." + zone("example.com")), pointer("home." + zone("example.com")),
		pointer(strings.Repeat("a", 63) + "b." + zone("example.com")), pointer("a\\.b." + zone("example.com"))},
		Found{Announcements: []Announcement{west()}, LeftOut: 4}},
	"instances in other domains": {[]dns.RR{pointer("east." + zone("example.org")), pointer("a.east." + zone("example.com")), pointer("."),
		pointer(zone("example.com"))}, Found{Announcements: []Announcement{west()}, LeftOut: 4}},
	"records of other names": {[]dns.RR{
		&dns.PTR{Hdr: dns.RR_Header{Name: zone("example.org"), Rrtype: dns.TypePTR}, Ptr: "east." + zone("example.com")},
		texts("east", "server=https://192.0.2.66:6443", "ca="+hash)}, Found{Announcements: []Announcement{west()}}},
	"a name that says nothing of itself": {[]dns.RR{pointer("east." + zone("example.com"))},
		Found{Announcements: []Announcement{west()}, LeftOut: 1}},
	"no address, no hash, and others that are none": {[]dns.RR{pointer("east." + zone("example.com")), texts("east"),
		texts("east", "ca="+hash), texts("east", "server=https://192.0.2.66:6443"), texts("east", "server=https://192.0.2.66:6443", "ca=md5:00")},
		Found{Announcements: []Announcement{west()}, LeftOut: 4}},
	"control characters in what is shown": {[]dns.RR{pointer("east." + zone("example.com")), texts("east", "server=https://192.0.2.66:6443",
		"ca="+hash, "version=v1\\027[2J", "uid=\\027", "classes=a\\010b,Fast,fast")}, Found{Announcements: []Announcement{
		{Name: "east", Server: "https://192.0.2.66:6443", CAHash: hash, Classes: []string{"fast"}}, west()}}},
	"two values of one key": {[]dns.RR{pointer("east." + zone("example.com")), texts("east", "server=https://192.0.2.66:6443",
		"server=https://192.0.2.67:6443", "ca="+hash, "CA="+other)}, Found{Announcements: []Announcement{
		{Name: "east", Server: "https://192.0.2.66:6443", CAHash: hash}, west()}}},
	"the same twice": {west().records("example.com", 0), Found{Announcements: []Announcement{west()}}},
	"another one of the name": {[]dns.RR{texts("WEST", "server=https://192.0.2.66:6443", "ca="+hash)}, Found{Announcements: []Announcement{
		west(), {Name: "west", Server: "https://192.0.2.66:6443", CAHash: hash}}}},
}

func TestHostileRecordsAreBoundedAndCleaned(t *testing.T) {
	for name, row := range hostile {
		t.Run(name, func(t *testing.T) {
			all := newAnswers("example.com")
			for _, record := range slices.Concat(west().records("example.com", zoneTTL), row.records) {
				all.add(record)
			}
			assert.Equal(t, row.found, all.found())
		})
	}
}

func TestThousandsOfNamesAreBounded(t *testing.T) {
	all := newAnswers("example.com")
	for i := range 5000 {
		name := fmt.Sprintf("c%d", i)
		all.add(pointer(name + "." + zone("example.com")))
		all.add(texts(name, "server=https://192.0.2.66:6443", "ca="+hash))
		all.add(texts("c0", fmt.Sprintf("server=https://192.0.2.66:%d", 1+i), "ca="+hash))
	}
	found := all.found()
	assert.True(t, found.More)
	assert.LessOrEqual(t, len(found.Announcements), maxNames+maxTexts)
	assert.LessOrEqual(t, len(all.names), maxNames)
	assert.LessOrEqual(t, len(all.asked), maxNames)
	assert.LessOrEqual(t, len(all.texts), maxNames)
}

func FuzzAnswers(f *testing.F) {
	for _, row := range hostile {
		message := dns.Msg{MsgHdr: dns.MsgHdr{Id: 7, Response: true}, Answer: slices.Concat(west().records("example.com", 1), row.records)}
		if content, err := message.Pack(); err == nil {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		all := newAnswers("example.com")
		all.take(content, 7)
		found := all.found()
		require.LessOrEqual(t, len(found.Announcements), maxNames*maxTexts)
		for _, one := range found.Announcements {
			require.True(t, validName(one.Name), one.Name)
			require.Equal(t, one.Server, server(one.Server))
			back, usable := read(one.Name, one.texts())
			require.True(t, usable)
			require.Equal(t, one, back)
		}
		(&responder{of: west()}).answer(content, true)
		(&responder{of: west()}).answer(content, false)
	})
}
