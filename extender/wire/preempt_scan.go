package wire

import (
	"slices"
	"strconv"
	"strings"
)

// ScanPreempt reads an ExtenderPreemptionArgs as kube-scheduler writes it, as Scan
// does an ExtenderArgs; false for any other body, which DecodePreempt must read.
func ScanPreempt(body []byte, names []string) (PreemptRequest, bool) {
	var pod podJSON
	var found []candidate
	var hasPod bool
	lists := 0
	s := &scanner{text: body}
	list := func(uid func(to *string) bool) func() bool {
		return func() bool {
			if s.null() {
				return true
			}
			lists++
			return s.candidates(&found, uid)
		}
	}
	ok := s.object(
		member{"Pod", func() bool { hasPod = true; return s.pod(&pod) }},
		member{"NodeNameToVictims", list(s.uidOfPod)},
		member{"NodeNameToMetaVictims", list(s.uidOfMetaPod)},
	)
	if !ok || !s.end() || !hasPod || lists != 1 {
		return PreemptRequest{}, false
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	request := PreemptRequest{Pod: podOf(&pod), Names: slices.Grow(names, len(found)), Victims: make([]Victims, 0, len(found))}
	for i, c := range found {
		if i > 0 && c.name == found[i-1].name {
			return PreemptRequest{}, false
		}
		request.Names, request.Victims = append(request.Names, c.name), append(request.Victims, c.victims)
	}
	return request, true
}

type candidate struct {
	name    string
	victims Victims
}

// candidates consumes the victims of all candidates. uid consumes one victim.
func (s *scanner) candidates(to *[]candidate, uid func(to *string) bool) bool {
	return s.keys(func(name []byte) bool {
		found := candidate{name: string(name), victims: Victims{UIDs: []string{}}}
		ok := s.object(
			member{"Pods", func() bool {
				return s.null() || s.list(func() bool {
					var id string
					ok := uid(&id) && id != ""
					found.victims.UIDs = append(found.victims.UIDs, id)
					return ok
				})
			}},
			member{"NumPDBViolations", func() bool { return s.integer(&found.victims.NumPDBViolations) }},
		)
		*to = append(*to, found)
		return ok
	})
}

func (s *scanner) uidOfMetaPod(to *string) bool {
	return s.object(member{"UID", func() bool { return s.into(to) }})
}

func (s *scanner) uidOfPod(to *string) bool {
	return s.object(member{"metadata", func() bool {
		return s.object(member{"uid", func() bool { return s.into(to) }})
	}})
}

// integer consumes a number that is an int64.
func (s *scanner) integer(to *int64) bool {
	s.next()
	start := s.at
	if !s.skipNumber() {
		return false
	}
	number, err := strconv.ParseInt(string(s.text[start:s.at]), 10, 64)
	*to = number
	return err == nil
}
