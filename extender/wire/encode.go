package wire

import (
	"encoding/json"
	"strconv"
)

// AppendFilterResult appends an ExtenderFilterResult to buffer, in the mode of
// the request. refusals holds one sentence for each of its nodes, empty for a
// node that is kept; nil keeps all. Every node that is not kept is listed with
// its sentence: kube-scheduler has no reason to show for one that just vanishes.
func AppendFilterResult(buffer []byte, request Request, refusals []string) []byte {
	kept := func(i int) bool { return refusals == nil || refusals[i] == "" }
	if request.NodeMode {
		buffer = append(buffer, `{"Nodes":{"metadata":{},"items":[`...)
	} else {
		// An empty list, unlike a missing one, means that no node is left.
		buffer = append(buffer, `{"NodeNames":[`...)
	}
	first := true
	for i, name := range request.Names {
		if !kept(i) {
			continue
		}
		buffer = comma(buffer, &first)
		if request.NodeMode {
			buffer = append(buffer, request.Nodes[i].Raw...)
		} else {
			buffer = appendString(buffer, name)
		}
	}
	buffer = append(buffer, ']')
	if request.NodeMode {
		buffer = append(buffer, '}')
	}
	buffer = append(buffer, `,"FailedAndUnresolvableNodes":{`...)
	first = true
	for i, name := range request.Names {
		if kept(i) {
			continue
		}
		buffer = comma(buffer, &first)
		buffer = appendString(buffer, name)
		buffer = append(buffer, ':')
		buffer = appendString(buffer, refusals[i])
	}
	return append(buffer, "}}"...)
}

// AppendPriorities appends a HostPriorityList with one entry for each name, each
// name once: kube-scheduler adds up what it gets for the same host.
func AppendPriorities(buffer []byte, names []string, score func(i int) int64) []byte {
	buffer = append(buffer, '[')
	seen := make(map[string]struct{}, len(names))
	first := true
	for i, name := range names {
		if _, again := seen[name]; again {
			continue
		}
		seen[name] = struct{}{}
		buffer = comma(buffer, &first)
		buffer = append(buffer, `{"Host":`...)
		buffer = appendString(buffer, name)
		buffer = append(buffer, `,"Score":`...)
		buffer = strconv.AppendInt(buffer, score(i), 10)
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
