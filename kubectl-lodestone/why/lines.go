package why

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// shownEvents is how many events of an object are shown.
const shownEvents = 3

// longest bounds, in bytes, each line of an answer.
const longest = 4096

// plain makes an answer of lines: what others wrote may have several, or orders for a terminal.
func (a Answer) plain() Answer {
	a.Sentence = sentence.Short(sentence.Plain(a.Sentence, longest), longest-1)
	for i := range a.Facts {
		a.Facts[i] = sentence.Short(sentence.Plain(a.Facts[i], longest), longest-1)
	}
	return a
}

// told are the texts that the answer has already.
type told struct{ texts []string }

// more returns a text of others as the end of a line, after a colon; empty if it was told already, or says nothing.
func (t *told) more(text string) string {
	text = plainly(text)
	if text == "" || slices.ContainsFunc(t.texts, func(known string) bool { return strings.Contains(known, text) }) {
		return ""
	}
	t.texts = append(t.texts, text)
	return ": " + text
}

func (p Pod) facts(s Setting, answer string) []string {
	said := &told{texts: []string{answer}}
	lines := []string{fmt.Sprintf("pod %s/%s: %s", p.Pod.Namespace, p.Pod.Name, cmp.Or(string(p.Pod.Status.Phase), "Unknown"))}
	if name := p.Pod.Spec.NodeName; name != "" {
		lines = append(lines, s.nodeLine(name))
	} else if chosen := p.Pod.Status.NominatedNodeName; chosen != "" {
		lines = append(lines, "chosen by the scheduler: "+s.nodeLine(chosen))
	}
	for _, c := range p.Pod.Status.Conditions {
		if text := said.more(c.Message); c.Status != corev1.ConditionTrue && text != "" {
			lines = append(lines, fmt.Sprintf("condition %s=%s (%s)%s", c.Type, c.Status, c.Reason, text))
		}
	}
	lines = append(lines, s.namespaceLine()...)
	involved := []string{wanted(p.Pod)}
	for _, claim := range p.Claims {
		lines = append(lines, claim.line(s, said)...)
		lines = append(lines, s.copyLines(claim.Name, said)...)
		involved = append(involved, claim.involves(s)...)
	}
	clusters := s.clusterLines(involved, said)
	lines = append(slices.DeleteFunc(lines, func(line string) bool {
		// A node that is told of with its cluster, which says more.
		return slices.ContainsFunc(clusters, func(told string) bool { return strings.HasPrefix(told, line) })
	}), clusters...)
	for _, v := range p.Extender.Verdicts {
		if text := said.more(v.Sentence); text != "" {
			lines = append(lines, fmt.Sprintf("extender: %d of the nodes of %s%s", v.Nodes, place(v.Cluster), text))
		}
	}
	for _, mark := range p.Extender.Marks {
		lines = append(lines, mark.line())
	}
	lines = append(lines, eventLines("pod", s.Now, p.Events, said)...)
	for _, claim := range p.Claims {
		lines = append(lines, eventLines("claim "+claim.Name, s.Now, claim.Events, said)...)
	}
	return lines
}

func (c Claim) facts(s Setting, answer string) []string {
	said := &told{texts: []string{answer}}
	lines := append(c.line(s, said), s.copyLines(c.Name, said)...)
	lines = append(lines, s.namespaceLine()...)
	lines = append(lines, s.clusterLines(c.involves(s), said)...)
	for _, pod := range c.Pods {
		lines = append(lines, fmt.Sprintf("pod %s uses it: %s, %s", pod.Name, pod.Status.Phase, cmp.Or(pod.Spec.NodeName, "no node")))
	}
	return append(lines, eventLines("claim", s.Now, c.Events, said)...)
}

func (c Claim) line(s Setting, said *told) []string {
	if c.Claim == nil {
		return []string{fmt.Sprintf("claim %s: does not exist", c.Name)}
	}
	parts := []string{string(c.Claim.Status.Phase)}
	if c.Class != nil {
		parts = append(parts, "storage class "+c.Class.Name)
	}
	if c.Volume != nil {
		parts = append(parts, "volume "+c.Volume.Name)
		if cluster := dataIn(c.Volume); cluster != "" {
			parts = append(parts, "data in "+place(cluster))
		}
	}
	if node := c.Claim.Annotations[keys.SelectedNode]; node != "" && c.Volume == nil {
		parts = append(parts, "to be made for node "+node)
	}
	if routed := c.Claim.Annotations[keys.Routed]; routed != "" && c.Volume == nil {
		parts = append(parts, "asked for in "+place(routed))
	}
	lines := []string{fmt.Sprintf("claim %s: %s", c.Name, strings.Join(parts, ", "))}
	for _, r := range locality.ActiveRefusals(locality.DecodeRefusals(c.Claim.Annotations[keys.Refused]), s.Now) {
		where := place(r.Cluster)
		if r.Node != "" {
			where = "node " + r.Node
		}
		lines = append(lines, fmt.Sprintf("claim %s: refused by %s until %s (%s)%s", c.Name, where, r.Until.Format(time.TimeOnly), r.Reason,
			said.more(r.Message)))
	}
	return lines
}

// involves returns the clusters that concern a claim.
func (c Claim) involves(s Setting) []string {
	if c.Claim == nil {
		return nil
	}
	clusters := []string{dataIn(c.Volume), c.Claim.Annotations[keys.Routed]}
	if node := s.node(c.Claim.Annotations[keys.SelectedNode]); node != nil {
		clusters = append(clusters, node.Labels[keys.Cluster])
	}
	for _, r := range locality.ActiveRefusals(locality.DecodeRefusals(c.Claim.Annotations[keys.Refused]), s.Now) {
		clusters = append(clusters, r.Cluster)
	}
	return clusters
}

// clusterLines describes remote clusters and their virtual nodes.
func (s Setting) clusterLines(names []string, said *told) []string {
	slices.Sort(names)
	var lines []string
	for _, name := range slices.Compact(names) {
		if name == "" || name == keys.Home {
			continue
		}
		switch problem := s.unusable(name); {
		case problem != "":
			lines = append(lines, place(name)+": not usable"+said.more(problem))
		case s.ClustersUnknown:
			lines = append(lines, place(name)+": how it is cannot be said, since you may not read RemoteClusters")
		default:
			lines = append(lines, place(name)+": volumes can be made there")
		}
		for _, node := range s.standing(name) {
			line := s.nodeLine(node.Name)
			for _, taint := range node.Spec.Taints {
				line += ", taint " + taint.ToString()
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func (s Setting) nodeLine(name string) string {
	node := s.node(name)
	switch {
	case node == nil && s.NodesUnknown:
		return fmt.Sprintf("node %s", name)
	case node == nil:
		return fmt.Sprintf("node %s: does not exist", name)
	}
	line := "node " + name
	if cluster := node.Labels[keys.Cluster]; cluster != "" {
		line += ", stands for " + place(cluster)
	}
	if problem := down(node); problem != "" {
		return line + ": not Ready: " + problem
	}
	return line + ": Ready"
}

func (s Setting) namespaceLine() []string {
	if s.Namespace == nil {
		return nil
	}
	var open, closed []string
	for _, cluster := range s.Clusters {
		if remotecluster.MayUse(s.Namespace, cluster.Name) {
			open = append(open, cluster.Name)
		} else {
			closed = append(closed, cluster.Name)
		}
	}
	if list, narrowed := s.Namespace.Annotations[keys.OffloadClusters]; s.ClustersUnknown &&
		s.Namespace.Labels[keys.Offload] == keys.OffloadEnabled {
		open = []string{"all remote clusters"}
		if narrowed {
			open = []string{list}
		}
	}
	line := "namespace " + s.Namespace.Name + ": open to " + cmp.Or(strings.Join(open, ", "), "no remote cluster")
	if len(closed) > 0 && len(open) > 0 {
		line += ", not to " + strings.Join(closed, ", ")
	}
	if leaving(s.Namespace) {
		line = "namespace " + s.Namespace.Name + ": is being deleted"
	}
	return []string{line}
}

func eventLines(what string, now time.Time, events []corev1.Event, said *told) []string {
	var lines []string
	for _, event := range Newest(events, shownEvents) {
		age := now.Sub(when(event)).Round(time.Second)
		if plainly(event.Message) != "" {
			lines = append(lines, fmt.Sprintf("event on %s, %s ago: %s%s", what, age, event.Reason, said.more(event.Message)))
		}
	}
	return lines
}

// Newest sorts events, the newest first, and returns at most n.
func Newest(events []corev1.Event, n int) []corev1.Event {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b corev1.Event) int { return when(b).Compare(when(a)) })
	return sorted[:min(n, len(sorted))]
}

func (m Mark) line() string {
	var parts []string
	if m.Data != nil {
		parts = append(parts, fmt.Sprintf("%s of the pod's %s of data", size(m.Data.Bytes), size(m.Data.Of)))
	}
	if m.Siblings != nil {
		parts = append(parts, m.Siblings.Pack.phrases("to be together")...)
		parts = append(parts, m.Siblings.Spread.phrases("to be spread")...)
	}
	switch room := m.Room; {
	case room == nil:
	case room.Class == "":
		parts = append(parts, "nobody knows how much room")
	default:
		parts = append(parts, fmt.Sprintf("%s free in class %s, %s asked for", size(room.Free), room.Class, size(room.Asked)))
	}
	return fmt.Sprintf("extender: %d of 10 for nodes of %s: %s", m.Score, place(m.Cluster), strings.Join(parts, "; "))
}

func (c *Count) phrases(rule string) []string {
	if c == nil {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d volumes of its StatefulSet, which are %s", c.Here, c.Of, rule)}
}

// size writes a number of bytes as Kubernetes does, with at most one decimal.
func size(bytes float64) string {
	unit := 0
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	for bytes >= 1024 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(bytes, 'f', 1, 64), ".0") + units[unit]
}

// when returns when an event happened last.
func when(e corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// latest returns the last event of one of the reasons, nil if there is none. What came from a remote
// cluster does not count, whatever reasons it gives: nothing is concluded from that.
func latest(events []corev1.Event, reasons sets.Set[string]) *corev1.Event {
	return last(events, func(e corev1.Event) bool { return !fromCluster(e) && reasons.Has(e.Reason) })
}
