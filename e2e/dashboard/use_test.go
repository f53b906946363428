package dashboard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/browser"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/dashboard"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

// column is what a cluster's column shows.
func column(page *browser.Page, cluster string) string {
	var text string
	page.Eval(fmt.Sprintf(`[...document.querySelectorAll(".cluster")].find((c) => c.querySelector("h3").textContent.startsWith(%q))?.textContent ?? ""`,
		cluster), &text)
	return text
}

func TestAPodOfSeveralVolumesCountsOnce(t *testing.T) {
	b := browser.Start(t)
	volume := func(claim, cluster string) status.Volume {
		return status.Volume{Namespace: "shop", Claim: claim, Name: "pvc-" + claim, Phase: "Bound", Cluster: cluster}
	}
	s := status.Status{Clusters: []status.Cluster{{Name: "west", Ready: true, Pods: 2}}, Volumes: []status.Volume{volume("data", "home"),
		volume("log", "home"), volume("index", "home"), volume("far", "west"), volume("wal", "west")},
		Pods: []status.Pod{{Namespace: "shop", Name: "db-0", Phase: "Running", Cluster: "home", Claims: []string{"data", "log", "index"}},
			{Namespace: "shop", Name: "db-1", Phase: "Running", Cluster: "home", Claims: []string{"log"}},
			{Namespace: "shop", Name: "db-2", Phase: "Running", Cluster: "west", Claims: []string{"far", "wal"}},
			{Namespace: "shop", Name: "front", Phase: "Running", Cluster: "west", Node: "west"}},
		Moves: []status.Move{}, Waiting: []status.Waiting{}, Omitted: 3}
	server := serve(t, s)
	page := drawn(t, b, server)
	assert.Contains(t, column(page, "home"), "Pods on them2")
	assert.Contains(t, column(page, "west"), "Pods2")
	assert.Contains(t, page.Text("#summary"), "used by 3 pods", "one pod uses none")
	assert.Contains(t, page.Text("#waiting"), "and up to 3 more: kubectl lodestone why -A lists them")

	s.Pods = s.Pods[1:]
	server.Show(s, "")
	await.Until(t, "a pod that is gone does not count", func() bool { return strings.Contains(column(page, "home"), "Pods on them1") })
	require.Empty(t, b.Failed())
}

func TestEachVolumeIsInTheColumnOfItsClusterAndFollowsChanges(t *testing.T) {
	b := browser.Start(t)
	s := shop()
	server := serve(t, s)
	page := drawn(t, b, server)
	assert.Contains(t, column(page, "home"), "data-db-0")
	assert.Contains(t, column(page, "home"), "db-0 runs on home-1")
	assert.Contains(t, column(page, "west"), "data-db-1")
	assert.Contains(t, column(page, "east"), "NotReachable: its API server does not answer")
	assert.Contains(t, column(page, "No volume yet"), "report")
	assert.Contains(t, column(page, "home"), "moving to west: PreCopy, 48 %")
	assert.Contains(t, page.Text("#waiting"), "leaves no room")
	assert.Contains(t, page.Text("#moves"), "48 %, 54 GiB of 112 GiB, pass 1")
	assert.Regexp(t, `copy in west of (\w+ \d+, )?\d\d:\d\d`, column(page, "home"))
	assert.NotRegexp(t, `copy in west of [^a-z]*: `, column(page, "home"), "it is well")
	assert.Regexp(t, `copy in west of .*: late, ClusterAway`, column(page, "east"))
	assert.True(t, page.Is("document.querySelector('progress').value / document.querySelector('progress').max > 0.48"))

	// The claim gets its volume, the move is done, what waited does not any more.
	s = shop()
	s.Volumes[8].Phase, s.Volumes[8].Name, s.Volumes[8].Cluster = "Bound", "pvc-report", "west"
	s.Volumes[5].Cluster = "west"
	s.Moves[0].State, s.Moves[0].Phase = status.Moved, "Done"
	s.Waiting, s.Clusters[0].Ready = []status.Waiting{}, true
	s.Pods = s.Pods[:8]
	s.Replicas = s.Replicas[1:]
	s.Replicas[0].Late, s.Replicas[0].State, s.Replicas[0].Sealed = false, "Seeding", nil
	server.Show(s, "")
	await.Until(t, "the claim is in west", func() bool { return strings.Contains(column(page, "west"), "report") })
	await.Until(t, "so is the volume that was moved", func() bool { return strings.Contains(column(page, "west"), "images") })
	assert.NotContains(t, column(page, "home"), "images")
	await.Until(t, "nothing waits", func() bool {
		return column(page, "No volume yet") == "" && page.Is("document.querySelector('#waiting').hidden")
	})
	await.Until(t, "a copy is gone, and the other one begins anew", func() bool {
		return !strings.Contains(column(page, "home"), "copy in") && strings.Contains(column(page, "east"), "no copy in west yet: Seeding")
	})
	assert.Contains(t, page.Text("#summary"), "0 waiting")
	assert.Contains(t, page.Text("#summary"), "all are ready")
	assert.NotContains(t, column(page, "east"), "NotReachable")

	server.Show(s, "the cluster of context \"home\" does not answer")
	await.Until(t, "the page says that it is not new", func() bool { return strings.Contains(page.Text("#problem"), "does not answer") })
	s.Unread = []string{"nodes", "secrets"}
	server.Show(s, "")
	await.Until(t, "the page says what is left out", func() bool { return strings.Contains(page.Text("#unread"), "nodes, secrets") })
	assert.True(t, page.Is("document.querySelector('#problem').hidden"))
	require.Empty(t, b.Failed())
}

func TestRowsAndSumsAreRightAfterManyChanges(t *testing.T) {
	b := browser.Start(t)
	server := serve(t, many(600))
	page := drawn(t, b, server)
	// Volumes change their cluster, go and come back, in another order each time.
	for round := range 5 {
		s := many(600)
		kept := []status.Volume{}
		for i, volume := range s.Volumes {
			if (i*7+round)%5 == 0 {
				continue
			}
			if (i*11+round)%3 == 0 {
				volume.Cluster = "west"
			}
			kept = append(kept, volume)
		}
		s.Volumes = kept
		server.Show(s, "")
		count := func(cluster string) (rows int) {
			for _, volume := range kept {
				if volume.Cluster == cluster {
					rows++
				}
			}
			return rows
		}
		for _, cluster := range []string{"home", "west", "east"} {
			script := fmt.Sprintf(`(() => {
				const column = [...document.querySelectorAll(".cluster")].find((c) => c.querySelector("h3").textContent.startsWith(%q));
				const fact = [...column.querySelectorAll(".facts > div")].find((f) => f.firstChild.textContent === "Volumes").lastChild.textContent;
				const groups = [...column.querySelectorAll(".group")].every((group) => {
					const names = [...group.querySelectorAll(".name")].map((name) => name.textContent);
					return names.join() === names.toSorted().join() && group.querySelector("h4 span + span").textContent === String(names.length);
				});
				return column.querySelectorAll(".row").length === %d && fact === "%[2]d" && groups;
			})()`, cluster, count(cluster))
			await.Until(t, "all rows of "+cluster+" are there, sorted and counted", func() bool { return page.Is(script) })
		}
	}
	require.Empty(t, b.Failed())
}

func TestThePageIsUsedWithTheKeyboard(t *testing.T) {
	b := browser.Start(t)
	page := drawn(t, b, serve(t, shop()))
	page.Looks(1280, 1000, nil)
	focused := func() string {
		var text string
		page.Eval(`document.activeElement.id || document.activeElement.textContent.replace(/\s+/g, " ")`, &text)
		return text
	}
	var order []string
	for range 8 {
		page.Press("Tab", 0)
		order = append(order, focused())
	}
	assert.Equal(t, []string{"Skip to clusters and volumes", "2 remote clusters1 not ready", "8 volumes1.4 TiB, used by 10 pods",
		"1 moveunder way", "2 waitingpods and claims, with the reason", "moves-over-title", "filter", "The same as JSON"}, order)
	assert.True(t, page.Is(`getComputedStyle(document.activeElement).outlineStyle !== "none"`), "the focus is seen")

	page.Eval("document.activeElement.blur()", nil)
	page.Press("/", 0)
	assert.Equal(t, "filter", focused())
	page.Type("DB shop")
	await.Until(t, "the filter says how many rows match", func() bool { return page.Text("#found") == "3 matches" })
	var rows []string
	page.Eval(`[...document.querySelectorAll(".row:not([hidden]) .name")].map((e) => e.textContent)`, &rows)
	assert.ElementsMatch(t, []string{"data-db-0", "data-db-1", "data-db-2"}, rows)
	page.Press("Escape", 0)
	await.Until(t, "all rows are back", func() bool { return page.Is(`!document.querySelector(".row[hidden]")`) })
	require.Empty(t, b.Failed())
}

func TestScreenReadersAreToldWhatIsShown(t *testing.T) {
	b := browser.Start(t)
	page := drawn(t, b, serve(t, shop()))
	nodes := page.Accessible()
	for _, want := range []browser.Node{
		{Role: "heading", Name: "Lodestone"}, {Role: "heading", Name: "What waits, and why"}, {Role: "heading", Name: "Moves"},
		{Role: "heading", Name: "Clusters and volumes"}, {Role: "region", Name: "Clusters and volumes"},
		{Role: "region", Name: "west remote cluster"},
		{Role: "navigation", Name: "Summary"}, {Role: "searchbox", Name: "Filter"}, {Role: "list", Name: "shop"},
		{Role: "image", Name: "to"},
		{Role: "link", Name: "2 waiting pods and claims, with the reason"}, {Role: "StaticText", Name: "db-1 runs"},
	} {
		assert.True(t, slices.Contains(nodes, want), "%+v", want)
	}
	bars := 0
	for _, node := range nodes {
		if node.Role == "progressbar" || node.Role == "ProgressIndicator" || node.Role == "progress" {
			bars++
			assert.NotEmpty(t, node.Name)
		}
	}
	assert.Equal(t, 1, bars)
	await.Until(t, "the sums are announced", func() bool { return strings.Contains(page.Text("#news"), "2 pods and claims waiting") })
	assert.True(t, page.Is(`document.querySelector("#news").getAttribute("aria-live") === "polite"`))
	require.Empty(t, b.Failed())
}

func TestScreenReadersAreToldOfAllRowsThatMatch(t *testing.T) {
	b := browser.Start(t)
	page := drawn(t, b, serve(t, many(5000)))
	assert.True(t, page.Is(`document.querySelector("#columns.many")`), "most rows are not laid out")
	page.Press("/", 0)
	page.Type("team-07/")
	await.Until(t, "the filter says how many rows match", func() bool { return page.Text("#found") == "125 matches" })
	items := 0
	for _, node := range page.Accessible() {
		if node.Role == "StaticText" && strings.HasPrefix(node.Name, "data-db-") {
			items++
		}
	}
	assert.Equal(t, 125, items)
	require.Empty(t, b.Failed())
}

func TestWhatClustersWriteIsTextAndNothingElse(t *testing.T) {
	b := browser.Start(t)
	evil := `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`
	s := shop()
	s.Clusters[0].Name, s.Clusters[0].Message, s.Clusters[1].StorageClasses = evil, evil, []string{evil}
	for i := range s.Volumes {
		s.Volumes[i].Trouble, s.Volumes[i].Namespace, s.Volumes[i].Class = evil, "__proto__", evil
	}
	s.Pods[0].Name, s.Moves[0].Message, s.Moves[0].Claims = evil, evil, []string{evil}
	s.Waiting[0].Why, s.Waiting[0].Name, s.Notes = evil, "constructor", []string{evil}
	page := drawn(t, b, serve(t, s))
	assert.Contains(t, page.Text("#waiting"), evil)
	assert.Contains(t, page.Text("#notes"), evil)
	assert.Contains(t, page.Text("#moves"), evil)
	assert.True(t, page.Is("window.pwned === undefined"))
	assert.True(t, page.Is(`document.querySelectorAll("img").length === 1 && document.querySelectorAll("script").length === 1`))
	require.Empty(t, b.Failed())
	// And if the page made that mistake, the browser would refuse it.
	assert.True(t, page.Is(`(() => { try { document.body.innerHTML = "<b>no</b>"; return false } catch (e) { return e instanceof TypeError } })()`))
}

func TestThePageSaysThatThePluginHasEnded(t *testing.T) {
	b := browser.Start(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := dashboard.NewServer("home", listener)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	server.Show(shop(), "")
	page := drawn(t, b, server)
	assert.Equal(t, "Live", page.Text("#connection"))
	cancel()
	require.NoError(t, <-ended)
	await.Until(t, "the page says so", func() bool {
		return strings.Contains(page.Text("#connection"), "does kubectl lodestone dashboard still run?")
	})
	assert.Contains(t, column(page, "home"), "data-db-0", "what was seen stays")
}

func TestOtherSitesGetNothing(t *testing.T) {
	b := browser.Start(t)
	server := serve(t, shop())
	// A page of another port of this machine, which may ask whom it likes.
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>other</title>")
	}))
	defer site.Close()
	page := b.Tab(t)
	page.Go(site.URL)
	await.Until(t, "the other site is there", func() bool { return page.Is("document.title === 'other'") })
	for name, script := range map[string]string{
		"by a request": `fetch(%q + "status.json").then(() => "read", () => "refused")`,
		"as a script": `new Promise((done) => { const s = document.createElement("script"); s.src = %q + "app.js";
			s.onload = () => done("read"); s.onerror = () => done("refused"); document.head.append(s) })`,
		"as a picture": `new Promise((done) => { const i = new Image(); i.onload = () => done("read"); i.onerror = () => done("refused");
			i.src = %q + "icon.svg" })`,
		"as events": `new Promise((done) => { const e = new EventSource(%q + "events"); e.onmessage = () => done("read");
			e.onerror = () => done("refused") })`,
		"in a frame": `new Promise((done) => { const f = document.createElement("iframe"); f.src = %q; f.onload = () => {
			try { done(f.contentDocument.title) } catch { done("refused") } }; document.body.append(f) })`,
	} {
		t.Run(name, func(t *testing.T) {
			var result string
			page.Eval(fmt.Sprintf(script, server.Address()), &result)
			assert.Equal(t, "refused", result)
		})
	}
	assert.False(t, server.Watched())
}
