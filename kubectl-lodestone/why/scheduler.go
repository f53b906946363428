package why

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// blocked is what kube-scheduler says of a pod with scheduling gates: that it waits as it is to.
const blocked = "Scheduling is blocked due to non-empty scheduling gates"

// boilerplate begins what kube-scheduler adds to every message: what it found about preemption, and about devices.
var boilerplate = regexp.MustCompile(`[.,]? *(preemption: |no new claims to deallocate|Preemption is not helpful for scheduling)`)

// notYet is what a kubelet says of a pod whose containers have not all started, or are not all ready: that it is so.
var notYet = regexp.MustCompile(`^containers with (unready|incomplete|unknown) status: \[(.*)\]$`)

// plainly returns a text of kube-scheduler, or of a kubelet, without what is the same in all of them; empty if nothing else is in it.
func plainly(text string) string {
	if at := boilerplate.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	if text = strings.TrimSpace(text); text == blocked || notYet.MatchString(text) {
		return ""
	}
	return text
}

var (
	noneOf = regexp.MustCompile(`^0/(\d+) nodes are available: (.+?)\.?$`)
	// reason begins each of the reasons that kube-scheduler counts nodes by.
	reason = regexp.MustCompile(`(^|, )(\d+) `)
	taint  = regexp.MustCompile(`untolerated taint(?:\(s\)|s)? ?\{?([^}]*)\}?`)
	lacks  = regexp.MustCompile(`^Insufficient (\S+)$`)
	// nodesThat begins the reasons of the extender that describe nodes; what kube-scheduler says of nodes goes on with a verb.
	nodesThat = regexp.MustCompile(`^node\(s\) ((?:of|in|outside|with|too) .*)$`)
)

// fitsNone returns why no node takes a pod, in other words than kube-scheduler's, and what to do; the reasons that it does not know
// are kept as they are.
func fitsNone(message string) string {
	message = plainly(message)
	found := noneOf.FindStringSubmatch(message)
	if found == nil {
		return message
	}
	starts := reason.FindAllStringSubmatchIndex(found[2], -1)
	if len(starts) == 0 {
		return found[2]
	}
	var all []string
	advice := ""
	for i, at := range starts {
		end := len(found[2])
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		count, err := strconv.Atoi(found[2][at[4]:at[5]])
		if err != nil {
			return message
		}
		says, do := because(count, strings.TrimSuffix(found[2][at[1]:end], "."))
		all = append(all, says)
		advice = cmp.Or(advice, do)
	}
	text := fmt.Sprintf("of %s nodes, %s", found[1], strings.Join(all, ", "))
	if found[1] == "1" {
		text = "of 1 node, " + strings.Join(all, ", ")
	}
	if advice != "" {
		text += "; " + advice
	}
	return text
}

// known are reasons of kube-scheduler, each with what it says of the nodes, one or several, and what to do.
var known = []struct{ has, one, several, do string }{
	{"Too many pods", "has as many pods as it may have", "have as many pods as they may have", "remove pods, or add a node"},
	{"volume node affinity conflict", "cannot use the volumes of the pod", "cannot use the volumes of the pod", ""},
	{"didn't match PersistentVolume's node affinity", "cannot use the volumes of the pod", "cannot use the volumes of the pod", ""},
	{"didn't match Pod's node affinity", "is not one that the pod's node selector or affinity asks for",
		"are not what the pod's node selector or affinity asks for", "correct these, or label a node"},
	{"were unschedulable", "is cordoned", "are cordoned", "kubectl uncordon lets pods there again"},
	{"anti-affinity", "has a pod beside which this one must not run", "have pods beside which this one must not run",
		"add a node, or have fewer replicas"},
	{"didn't match pod affinity rules", "has no pod beside which this one must run", "have no pods beside which this one must run", ""},
	{"topology spread constraints", "has its share of such pods (topologySpreadConstraints)",
		"have their share of such pods (topologySpreadConstraints)", "make room elsewhere, or allow more skew"},
	{"didn't have free ports", "has the host port in use", "have the host port in use", "free it, or take another port"},
	{"did not have enough free storage", "has too little storage left for its claims", "have too little storage left for its claims",
		"free some, or ask for less"},
	{"exceed max volume count", "has as many volumes attached as it may have", "have as many volumes attached as they may have", ""},
}

// because says one reason why that many nodes do not take a pod, and what to do; the latter is empty where others are to act.
func because(count int, reason string) (says, do string) {
	n := strconv.Itoa(count)
	has, have := " has ", count != 1
	if have {
		has = " have "
	}
	if found := lacks.FindStringSubmatch(reason); found != nil {
		return n + has + "too little " + found[1] + " left", "free some, or have the pod ask for less"
	}
	if found := taint.FindStringSubmatch(reason); found != nil {
		if strings.HasPrefix(found[1], keys.RemoteTaint) {
			return n + map[bool]string{false: " stands for a remote cluster", true: " stand for remote clusters"}[have] +
				" to which the pod may not go", "label its namespace " + keys.Offload + "=" + keys.OffloadEnabled + " and make the pod anew if it is to"
		}
		text := n + has + "a taint that the pod does not tolerate"
		if found[1] != "" {
			text += " (" + found[1] + ")"
		}
		return text, ""
	}
	for _, one := range known {
		if strings.Contains(reason, one.has) {
			if have {
				return n + " " + one.several, one.do
			}
			return n + " " + one.one, one.do
		}
	}
	if found := nodesThat.FindStringSubmatch(reason); found != nil {
		// A reason of the extender, which says itself what to do.
		return n + map[bool]string{false: " is a node ", true: " are nodes "}[have] + found[1], ""
	}
	return n + ": " + reason, ""
}
