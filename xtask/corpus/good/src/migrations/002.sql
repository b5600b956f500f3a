-- sample: migration
ALTER TABLE jobs ADD COLUMN note TEXT;
UPDATE jobs SET note = '';
