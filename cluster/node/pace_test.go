package node

import (
	"testing"
	"time"
)

func TestWriteP99(t *testing.T) {
	var p Pace
	if got := p.writeP99(); got != 0 {
		t.Errorf("none: %v", got)
	}
	p.write(time.Second)
	if got := p.writeP99(); got != time.Second {
		t.Errorf("one: %v", got)
	}
	for range 98 {
		p.write(time.Millisecond)
	}
	if got := p.writeP99(); got != time.Second {
		t.Errorf("the slowest of 99: %v", got)
	}
	p.write(time.Millisecond)
	if got := p.writeP99(); got != time.Millisecond {
		t.Errorf("99 of 100: %v", got)
	}
	for range len(p.writes) {
		p.write(2 * time.Millisecond)
	}
	p.write(time.Minute)
	if got := p.writeP99(); got != 2*time.Millisecond {
		t.Errorf("older ones are forgotten: %v", got)
	}
}
