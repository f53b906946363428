package wire

import "strconv"

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
