package certificates

import (
	"bytes"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// Authorities are what there is to sign with and to trust.
type Authorities struct {
	// Current signs; nil if there is none yet.
	Current *Pair
	// Next signs after Current, and is trusted already; nil if it is too early.
	Next *Pair
	// Previous signed before Current, and is trusted until it expires; nil if
	// there is none.
	Previous *x509.Certificate
}

// Step is what is to be done with authorities.
type Step string

const (
	// Keep them as they are.
	Keep Step = ""
	// Begin with a new authority: there is none that is valid. Who trusted the last
	// one must learn of it.
	Begin Step = "made an authority"
	// Prepare the next one, which is trusted from now on.
	Prepare Step = "made the next authority, which is trusted from now on"
	// TakeOver lets the next one sign.
	TakeOver Step = "the next authority signs from now on"
	// Forget the previous one, which has expired.
	Forget Step = "forgot the authority that has expired"
)

// Plan says what is to be done first. After that step there may be another one.
func (a *Authorities) Plan(now time.Time) Step {
	switch {
	case a.Current == nil && a.Next == nil, a.Current != nil && a.Next == nil && now.After(a.Current.Certificate.NotAfter):
		return Begin
	case a.Next != nil && now.After(a.Next.Certificate.NotAfter):
		return Begin
	case a.Next != nil && (a.Current == nil || !now.Before(fraction(a.Current.Certificate, 5, 6))):
		return TakeOver
	case a.Next == nil && !now.Before(fraction(a.Current.Certificate, 2, 3)):
		return Prepare
	case a.Previous != nil && now.After(a.Previous.NotAfter):
		return Forget
	}
	return Keep
}

// Take returns the authorities after a step.
func (a *Authorities) Take(step Step, now time.Time, life time.Duration) (*Authorities, error) {
	after := *a
	switch step {
	case Keep:
	case Begin:
		made, err := NewAuthority(now, life)
		return &Authorities{Current: made}, err
	case Prepare:
		made, err := NewAuthority(now, life)
		if err != nil {
			return nil, err
		}
		after.Next = made
	case TakeOver:
		if a.Current != nil {
			after.Previous = a.Current.Certificate
		}
		after.Current, after.Next = a.Next, nil
	case Forget:
		after.Previous = nil
	}
	return &after, nil
}

// Bundle returns the authorities to trust, the one that signs first, in PEM.
func (a *Authorities) Bundle() []byte {
	var bundle []byte
	for _, certificate := range a.trusted() {
		bundle = append(bundle, encode(certificate)...)
	}
	return bundle
}

func (a *Authorities) trusted() []*x509.Certificate {
	trusted := []*x509.Certificate{a.Current.Certificate}
	if a.Next != nil {
		trusted = append(trusted, a.Next.Certificate)
	}
	if a.Previous != nil {
		trusted = append(trusted, a.Previous)
	}
	return trusted
}

// Reissue returns in a few words why a certificate is to be replaced; empty if it
// is as wanted. have is nil if there is none that can be read.
func (a *Authorities) Reissue(now time.Time, have *x509.Certificate, want Leaf) string {
	switch {
	case have == nil:
		return "there is none"
	case have.CheckSignatureFrom(a.Current.Certificate) != nil:
		return "another authority signs now"
	case have.Subject.CommonName != want.Name, !slices.Equal(have.ExtKeyUsage, []x509.ExtKeyUsage{want.Usage}):
		return "it is for another purpose"
	case !sameHosts(have, want.Hosts):
		return "the hosts are others now"
	case !now.Before(fraction(have, 2, 3)) && have.NotAfter.Before(a.Current.Certificate.NotAfter):
		return "two thirds of its life are over"
	}
	return ""
}

func sameHosts(have *x509.Certificate, hosts []string) bool {
	if len(have.DNSNames)+len(have.IPAddresses) != len(hosts) {
		return false
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			if !slices.ContainsFunc(have.IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(have.DNSNames, host) {
			return false
		}
	}
	return true
}

// fraction returns when a part of a certificate's life is over.
func fraction(certificate *x509.Certificate, part, of int64) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life / time.Duration(of) * time.Duration(part))
}

// same reports whether two bundles in PEM hold the same text.
func same(a, b []byte) bool {
	return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b))
}
