package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
)

// longestProblem bounds what Unreadable says, in bytes: errors may repeat what
// was read.
const longestProblem = 200

// UnmarshalJSON never fails on what the API server lets pass. The schema leaves
// spec.pod open, so a home cluster may write anything there; if one of those
// could not be decoded, no list that holds it could be, and nobody's pods would
// be seen. What cannot be read is left empty, and Unreadable says why.
func (s *ShadowPodSpec) UnmarshalJSON(data []byte) error {
	type plain ShadowPodSpec
	var whole plain
	err := json.Unmarshal(data, &whole)
	if err == nil {
		*s = ShadowPodSpec(whole)
		return nil
	}
	*s = ShadowPodSpec{Unreadable: shorten(err.Error())}
	var fields map[string]any
	if json.Unmarshal(data, &fields) != nil {
		return nil //nolint:nilerr // Unreadable says what is wrong
	}
	// One by one, so that none depends on the others.
	keep(fields, "home", &s.Home)
	keep(fields, "start", &s.Start)
	keep(fields, "gracePeriodSeconds", &s.GracePeriodSeconds)
	return nil
}

// keep sets a value to that of a field if it can be read.
func keep[T any](fields map[string]any, name string, value *T) {
	text, err := json.Marshal(fields[name])
	if err != nil {
		return
	}
	var read T
	if json.Unmarshal(text, &read) == nil {
		*value = read
	}
}

// shorten makes a problem fit a status.
func shorten(problem string) string {
	if len(problem) > longestProblem {
		problem = problem[:longestProblem]
	}
	return strings.ToValidUTF8(problem, "")
}
