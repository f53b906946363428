package virtualclass

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// reserved are the domains of keys that Kubernetes and Lodestone act upon: on a
// backing claim they are not the user's to write. Their subdomains are reserved
// too, but for recommended, which nothing acts upon.
var reserved = []string{keys.Driver, "kubernetes.io", "k8s.io"}

const recommended = "app.kubernetes.io"

// Carriable says whether a label or annotation of this key may be carried from
// a virtual claim to its backing claim at all.
func Carriable(key string) bool {
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	if !found || domain == recommended {
		return true
	}
	return !slices.ContainsFunc(reserved, func(r string) bool { return domain == r || strings.HasSuffix(domain, "."+r) })
}

// Carries says whether labels and annotations of this key are carried from
// a virtual claim of the class to its backing claim.
func (c Class) Carries(key string) bool {
	return Carriable(key) && slices.ContainsFunc(c.carry, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return key == pattern || (open && strings.HasPrefix(key, prefix))
	})
}

// CarriesAny says whether the class carries anything.
func (c Class) CarriesAny() bool { return len(c.carry) > 0 }

// parseCarry reads a list of keys, each exact or with an asterisk at its end.
func parseCarry(class, value string) ([]string, error) {
	patterns := list(value)
	for _, pattern := range patterns {
		prefix := strings.TrimSuffix(pattern, "*")
		switch {
		case strings.ContainsAny(prefix, "* \t\n"):
			return nil, fmt.Errorf("storage class %q has the pattern %q in parameter %s: create it anew with keys, separated by commas, that have an asterisk at most at their end", class, pattern, keys.Carry)
		case !Carriable(prefix):
			return nil, fmt.Errorf("storage class %q has the pattern %q in parameter %s: create it anew without it, for keys of that domain are never carried", class, pattern, keys.Carry)
		}
	}
	return patterns, nil
}
