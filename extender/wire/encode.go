package wire

import (
	"encoding/json"
	"slices"
	"strconv"
)

// AppendFilterResult appends an ExtenderFilterResult to buffer, in the mode of
// the request. refusal returns the sentence for its i-th node, empty for a node
// that is kept; nil keeps all. Every node that is not kept is listed with its
// sentence: kube-scheduler has no reason to show for one that just vanishes.
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
		// Whole nodes are large: to grow again and again would copy them as often.
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

// sentence is what was written last, and where: the next node is mostly refused
// with the same.
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
	// It came as it is, between quotes.
	buffer = append(buffer, '"')
	buffer = append(buffer, name...)
	return append(buffer, '"')
}

// AppendNoPriorities appends a HostPriorityList without entries, which gives each
// node 0, and which kube-scheduler reads in no time.
func AppendNoPriorities(buffer []byte) []byte {
	return append(buffer, "[]"...)
}

// AppendPriorities appends a HostPriorityList. kube-scheduler adds up what it gets
// for the same host, so of a name that the request has several times only the
// first gets more than 0.
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

// AppendError appends an answer that holds nothing but an error. Its one field
// is that of an ExtenderFilterResult.
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
