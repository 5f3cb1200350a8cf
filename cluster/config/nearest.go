package config

import (
	"fmt"
	"slices"
	"strings"
)

// nearest finds the known word that was probably meant; empty if none is near.
func nearest(word string, known []string) string {
	best, bestDistance := "", 1+max(1, len(word)/3)
	folded := fold(word)
	for _, k := range known {
		d := distance(folded, fold(k))
		if d >= bestDistance && sameStem(folded, fold(k)) {
			d = bestDistance - 1
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// sameStem sees "user" in "username" and "fence" in "fencing".
func sameStem(a, b string) bool {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	shorter := min(len(a), len(b))
	return n >= 3 && (n == shorter || n >= 4 && n >= shorter*3/4)
}

// fold ignores case and the difference between - and _.
func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }

// distance counts the insertions, deletions, replacements and swaps of neighbours that
// turn a into b.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}

// meant is the cure for an unknown word: the nearest known one, else all of them.
func meant(word string, known []string, what string) string {
	if n := nearest(word, known); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	known = slices.DeleteFunc(known, func(k string) bool { return k == "" })
	if len(known) == 0 {
		return "there are no " + what
	}
	return fmt.Sprintf("known %s: %s", what, strings.Join(known, ", "))
}
