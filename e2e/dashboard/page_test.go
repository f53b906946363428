// Package dashboard tests the page of kubectl lodestone dashboard in a headless Chromium. It needs no
// control plane: e2e/plugin tests the command with one.
package dashboard

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/browser"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/dashboard"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

// serve serves the page with a status.
func serve(t *testing.T, shown status.Status) *dashboard.Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := dashboard.NewServer("home", listener)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	server.Show(shown, "")
	return server
}

// drawn opens the page and waits until all of it is drawn.
func drawn(t *testing.T, b *browser.Browser, server *dashboard.Server) *browser.Page {
	t.Helper()
	page := b.Tab(t)
	_ = page.Processor() // measured from now on
	page.Go(server.Address())
	await.Until(t, "the page is drawn", func() bool {
		require.Empty(t, b.Failed())
		return page.Is("document.body?.dataset.drawn === 'yes'")
	})
	return page
}

// shots is where pictures of the page are written to, empty for nowhere.
func shots() string { return os.Getenv("LODESTONE_SCREENSHOTS") }

func TestPicturesOfThePage(t *testing.T) {
	if shots() == "" {
		t.Skip("LODESTONE_SCREENSHOTS names no folder for pictures")
	}
	b := browser.Start(t)
	page := drawn(t, b, serve(t, shop()))
	for _, scheme := range []string{"light", "dark"} {
		page.Looks(1520, 1110, map[string]string{"prefers-color-scheme": scheme})
		page.Screenshot(filepath.Join(shots(), "page-"+scheme+".png"))
	}
	page.Looks(420, 1400, map[string]string{"prefers-color-scheme": "light"})
	page.Screenshot(filepath.Join(shots(), "page-narrow.png"))
	require.Empty(t, b.Failed())
}

// unreadable finds each text that is on the page whose contrast with what is behind it is below that of WCAG 2.2, level AA.
const unreadable = `(() => {
	const parse = (color) => {
		const parts = color.match(/[\d.]+/g).map(Number), share = color.startsWith("color(") ? 255 : 1;
		return [parts[0] * share, parts[1] * share, parts[2] * share, parts[3] ?? 1];
	};
	const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
	const behind = (element) => {
		const layers = [];
		for (let e = element; e; e = e.parentElement) {
			const layer = parse(getComputedStyle(e).backgroundColor);
			if (layer[3] > 0) layers.push(layer);
			if (layer[3] === 1) break;
		}
		return layers.reduceRight((under, layer) => over(layer, under), [255, 255, 255, 1]);
	};
	const light = (color) => color.slice(0, 3).map((c) => c / 255)
		.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
		.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	let looked = 0;
	const bad = [];
	for (const element of document.body.querySelectorAll("*")) {
		const text = [...element.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => n.data.trim()).join(" ").trim();
		if (!text || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
		const style = getComputedStyle(element), ground = behind(element);
		const [a, b] = [light(over(parse(style.color), ground)), light(ground)];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
		const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		looked++;
		if (ratio < (large ? 3 : 4.5)) bad.push(ratio.toFixed(2) + " " + element.tagName + "." + element.className + " " + text.slice(0, 40));
	}
	return { looked, bad, page: getComputedStyle(document.body).backgroundColor };
})()`

func TestTextCanBeReadInLightAndInDark(t *testing.T) {
	b := browser.Start(t)
	page := drawn(t, b, serve(t, shop()))
	grounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		page.Looks(1280, 1000, map[string]string{"prefers-color-scheme": scheme})
		var found struct {
			Looked int      `json:"looked"`
			Bad    []string `json:"bad"`
			Page   string   `json:"page"`
		}
		page.Eval(unreadable, &found)
		t.Logf("%s: %d texts on %s", scheme, found.Looked, found.Page)
		assert.Empty(t, found.Bad, scheme)
		assert.Greater(t, found.Looked, 50, "they were looked at")
		grounds[found.Page] = true
	}
	assert.Len(t, grounds, 2, "dark is another page than light")
	require.Empty(t, b.Failed())
}

// figures are what a page measures of itself while it scrolls from top to bottom.
type figures struct {
	Frames  int     `json:"frames"`
	Median  float64 `json:"median"`
	P95     float64 `json:"p95"`
	Longest float64 `json:"longest"`
	// Processor is how much of a processor the main thread took for each frame.
	Processor time.Duration `json:"-"`
}

func (f figures) String() string {
	return fmt.Sprintf("%d frames, one every %.1f ms (median; p95 %.1f, longest %.1f); %s of the main thread each", f.Frames, f.Median, f.P95,
		f.Longest, f.Processor.Round(10*time.Microsecond))
}

// scrolling takes a step in each of 150 frames.
const scrolling = `new Promise((done) => {
	const frames = [], step = Math.max(120, document.documentElement.scrollHeight / 150);
	let at = 0, last = performance.now();
	scrollTo(0, 0);
	requestAnimationFrame(function frame(now) {
		frames.push(now - last);
		last = now;
		at += step;
		scrollTo(0, at);
		if (frames.length < 150) return requestAnimationFrame(frame);
		const sorted = frames.slice(2).sort((a, b) => a - b), nth = (part) => sorted[Math.floor(part * (sorted.length - 1))];
		done({ frames: sorted.length, median: nth(0.5), p95: nth(0.95), longest: nth(1) });
	});
})`

func scroll(page *browser.Page) figures {
	var f figures
	before := page.Processor()
	page.Eval(scrolling, &f)
	f.Processor = (page.Processor() - before) / time.Duration(f.Frames)
	return f
}

// Times are printed, for docs/dashboard.md, and have no budget here: they depend on the machine. The yardstick is a page with a hundredth
// of the claims.
func TestThePageShows5000ClaimsAndStaysLight(t *testing.T) {
	const claims = 5000
	b := browser.Start(t)
	few := drawn(t, b, serve(t, busy(claims/100)))
	few.Looks(1280, 1000, nil)
	t.Logf("%d claims, scrolled: %s", claims/100, scroll(few))

	server := serve(t, busy(claims))
	begun := time.Now()
	page := drawn(t, b, server)
	page.Looks(1280, 1000, nil)
	t.Logf("%d claims and pods are drawn after %s, of which the main thread was on a processor for %s", claims,
		time.Since(begun).Round(time.Millisecond), page.Processor().Round(time.Millisecond))
	var loaded struct {
		Weight int `json:"weight"`
		Rows   int `json:"rows"`
	}
	page.Eval(`({ rows: document.querySelectorAll(".row").length,
		weight: [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
			.filter((e) => !e.name.endsWith("/events")).reduce((sum, e) => sum + e.decodedBodySize, 0) })`, &loaded)
	t.Logf("the page weighs %d bytes", loaded.Weight)
	assert.Equal(t, claims, loaded.Rows)
	assert.LessOrEqual(t, loaded.Weight, 200_000)
	assert.Greater(t, loaded.Weight, 10_000, "it was weighed")
	assert.True(t, page.Is(`document.querySelectorAll(".row progress, #moves progress").length > 0`), "moves are shown")
	assert.Contains(t, column(page, "home"), "copy in west of", "second copies are shown")
	t.Logf("%d claims, scrolled: %s", claims, scroll(page))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for round := 0; ctx.Err() == nil; round++ {
			s := busy(claims)
			for i := range 100 {
				s.Pods[(round*100+i)%claims].Phase = "Pending"
			}
			server.Show(s, "")
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	// The slower frames come, the more changes there are for each of them.
	t.Logf("%d claims, scrolled while 100 pods change twice a second: %s", claims, scroll(page))
	cancel()
	<-ended
	require.Empty(t, b.Failed())
}
