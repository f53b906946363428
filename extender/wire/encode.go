package wire

import (
	"encoding/json"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
)

// AppendFilterResult appends an ExtenderFilterResult to buffer, in the mode of the request. refusal
// returns the sentence for the i-th node, empty for a node that is kept; nil keeps all. Every
// refused node is listed with its sentence: for a node that is just left out kube-scheduler has no
// reason to show.
func AppendFilterResult(buffer []byte, request Request, refusal func(i int) string) []byte {
	if refusal == nil {
		refusal = func(int) string { return "" }
		if request.list != nil {
			buffer = append(buffer, `{"NodeNames":`...)
			buffer = append(buffer, request.list...)
			return append(buffer, `,"FailedAndUnresolvableNodes":{}}`...)
		}
	}
	buffer = appendKept(buffer, request, refusal)
	buffer = append(buffer, `,"FailedAndUnresolvableNodes":{`...)
	var last sentence
	first := true
	for i, name := range request.Names {
		why := refusal(i)
		if why == "" {
			continue
		}
		buffer = comma(buffer, &first)
		buffer = request.appendName(buffer, name)
		buffer = append(buffer, ':')
		buffer = last.append(buffer, why)
	}
	return append(buffer, "}}"...)
}

func appendKept(buffer []byte, request Request, refusal func(i int) string) []byte {
	first := true
	if request.NodeMode {
		// Whole nodes are large: growing the buffer step by step would copy them many times.
		size := 0
		for _, node := range request.Nodes {
			size += len(node.Raw) + 1
		}
		buffer = slices.Grow(buffer, size)
		buffer = append(buffer, `{"Nodes":{"metadata":{},"items":[`...)
		for i, node := range request.Nodes {
			if refusal(i) == "" {
				buffer = comma(buffer, &first)
				buffer = append(buffer, node.Raw...)
			}
		}
		return append(buffer, "]}"...)
	}
	// An empty list, unlike a missing one, means that no node is left.
	buffer = append(buffer, `{"NodeNames":[`...)
	for i, name := range request.Names {
		if refusal(i) == "" {
			buffer = comma(buffer, &first)
			buffer = request.appendName(buffer, name)
		}
	}
	return append(buffer, ']')
}

// sentence is the last encoded sentence and its position in the buffer: the next node mostly has
// the same.
type sentence struct {
	text       string
	start, end int
}

func (s *sentence) append(buffer []byte, text string) []byte {
	if text == s.text {
		return append(buffer, buffer[s.start:s.end]...)
	}
	start := len(buffer)
	buffer = appendString(buffer, text)
	*s = sentence{text: text, start: start, end: len(buffer)}
	return buffer
}

// appendName appends a node name of the request.
func (r *Request) appendName(buffer []byte, name string) []byte {
	if r.list == nil {
		return appendString(buffer, name)
	}
	// It is written as it came, between quotes.
	buffer = append(buffer, '"')
	buffer = append(buffer, name...)
	return append(buffer, '"')
}

// AppendNoPriorities appends a HostPriorityList without entries, which gives each node 0 and costs
// kube-scheduler nothing to read.
func AppendNoPriorities(buffer []byte) []byte {
	return append(buffer, "[]"...)
}

// AppendPriorities appends a HostPriorityList. kube-scheduler adds up the scores of the same host,
// so if the request has a name several times, only the first gets more than 0.
func AppendPriorities(buffer []byte, request Request, score func(i int) int64) []byte {
	buffer = append(buffer, '[')
	var scored set
	first := true
	for i, name := range request.Names {
		points := score(i)
		if points != 0 && !scored.add(request.Names, i) {
			points = 0
		}
		buffer = comma(buffer, &first)
		buffer = append(buffer, `{"Host":`...)
		buffer = request.appendName(buffer, name)
		buffer = append(buffer, `,"Score":`...)
		buffer = strconv.AppendInt(buffer, points, 10)
		buffer = append(buffer, '}')
	}
	return append(buffer, ']')
}

// AppendError appends an answer with only an error. Its one field is that of an
// ExtenderFilterResult.
func AppendError(buffer []byte, sentence string) []byte {
	buffer = append(buffer, `{"Error":`...)
	buffer = appendString(buffer, sentence)
	return append(buffer, '}')
}

func comma(buffer []byte, first *bool) []byte {
	if *first {
		*first = false
		return buffer
	}
	return append(buffer, ',')
}

func appendString(buffer []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendQuoted(buffer, s)
		}
	}
	buffer = append(buffer, '"')
	buffer = append(buffer, s...)
	return append(buffer, '"')
}

func appendQuoted(buffer []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		// A string always has a JSON form: invalid UTF-8 is replaced.
		return append(buffer, `""`...)
	}
	return append(buffer, quoted...)
}

// AppendPreemptResult appends an ExtenderPreemptionResult to buffer: the
// candidates without a refusal, each with its victims as they were sent. refusal
// returns the sentence for the i-th candidate, empty for one that is kept; nil
// keeps all. Both modes of a request get the same answer, with the UIDs of
// victims.
func AppendPreemptResult(buffer []byte, request PreemptRequest, refusal func(i int) string) []byte {
	buffer = append(buffer, `{"NodeNameToMetaVictims":{`...)
	first := true
	for i, name := range request.Names {
		if refusal != nil && refusal(i) != "" {
			continue
		}
		buffer = comma(buffer, &first)
		buffer = appendString(buffer, name)
		buffer = append(buffer, ':')
		buffer = appendVictims(buffer, request.Victims[i])
	}
	return append(buffer, "}}"...)
}

func appendVictims(buffer []byte, victims Victims) []byte {
	buffer = append(buffer, `{"Pods":[`...)
	first := true
	for _, uid := range victims.UIDs {
		buffer = comma(buffer, &first)
		buffer = append(buffer, `{"UID":`...)
		buffer = appendString(buffer, uid)
		buffer = append(buffer, '}')
	}
	buffer = append(buffer, `],"NumPDBViolations":`...)
	buffer = strconv.AppendInt(buffer, victims.NumPDBViolations, 10)
	return append(buffer, '}')
}

var seed = maphash.MakeSeed()

// set is a set of items of one list of strings, stored by their index. It needs a fraction of the
// time and memory of a map. The zero value is empty.
type set struct {
	// slots have 1 + the index of an item, or 0. An item whose slot is taken uses the next free
	// one.
	slots []uint32
}

// add adds the i-th item of list, which must always be the same list; false if an equal item is in
// the set.
func (s *set) add(list []string, i int) bool {
	if s.slots == nil {
		// At least half of the slots stay free.
		s.slots = make([]uint32, 2<<bits.Len(uint(len(list))))
	}
	mask := uint64(len(s.slots) - 1)
	for at := maphash.String(seed, list[i]) & mask; ; at = (at + 1) & mask {
		switch taken := s.slots[at]; {
		case taken == 0:
			s.slots[at] = uint32(i) + 1
			return true
		case list[taken-1] == list[i]:
			return false
		}
	}
}
